"""`coldframe ls`: what is installed and what could be served; it asks no running host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from host.cli.defaults import manifests_option
from host.cli.table import clean, table


@click.command("ls")
@manifests_option
@click.option("--json", "json_", is_flag=True, help="Print JSON instead of tables.")
def ls_command(manifests: Path | None, json_: bool) -> None:
    """Show the functions, engines, sources and placements that are installed, and the manifests.

    What is disabled is shown with the reason, and so is what is wrong with a manifest. `coldframe ps` shows what runs.
    """
    from host.cli import logs
    from host.cli.manifests import ManifestSet

    logs.set_up()
    shelf = ManifestSet(manifests)
    found = inventory(shelf)
    if json_:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        click.echo("\n".join(_lines(found, shelf.registry.consent_options)))


def inventory(shelf: Any) -> dict[str, Any]:
    """Return everything as plain data."""
    registry = shelf.registry
    entries, problems = shelf.read()
    where = {origin.plugin: origin for origin in registry.origins}
    return {
        "functions": [_function(registry, where, function) for function in registry.functions.values()],
        "engines": [_engine(registry, where, engine) for engine in registry.engines.values()],
        "sources": [source.name for source in registry.sources],
        "placements": sorted(registry.placements),
        "disabled": registry.disabled,
        "folder": str(shelf.folder),
        "manifests": [_manifest(registry, entry) for entry in entries],
        "problems": [msgspec.to_builtins(problem) for problem in problems],
    }


def _function(registry: Any, where: Any, function: Any) -> dict[str, Any]:
    return {
        "name": function.name,
        "summary": function.summary,
        "engines": list(function.instances),
        "operations": [operation.name for operation in function.operations],
        "tasks": list(function.tasks),
        **_origin(registry, where, function.name),
        "disabled": registry.disabled.get(f"function {function.name}"),
    }


def _engine(registry: Any, where: Any, engine: Any) -> dict[str, Any]:
    return {
        "name": engine.name,
        "summary": engine.summary,
        "suffixes": list(engine.suffixes),
        **_origin(registry, where, engine.name),
        "disabled": registry.disabled.get(f"engine {engine.name}"),
    }


def _origin(registry: Any, where: Any, name: str) -> dict[str, Any]:
    plugin = registry.came_from.get(name)
    origin = where.get(plugin)
    return {"plugin": plugin, "distribution": origin.distribution if origin else None}


def _manifest(registry: Any, entry: Any) -> dict[str, Any]:
    manifest = entry.manifest
    engine = registry.engine(manifest, entry.function)
    return {
        "name": manifest.name,
        "aliases": list(manifest.aliases),
        "task": entry.function.name,
        "engine": engine.name if engine else manifest.engine,
        "placement": manifest.placement,
        "model": manifest.model,
        "remote_code": bool(registry.consents(manifest, entry.function)),
        "file": str(entry.file),
    }


def _lines(found: dict[str, Any], consents: Sequence[str] = ()) -> Iterator[str]:
    yield _section(found, "functions", ("name", "engines", "operations", "tasks", "plugin", "distribution", "disabled"))
    yield _section(found, "engines", ("name", "suffixes", "plugin", "distribution", "disabled"))
    yield f"SOURCES     {', '.join(found['sources'])}"
    yield f"PLACEMENTS  {', '.join(found['placements'])}\n"
    shown = {row["name"] for row in (*found["functions"], *found["engines"])}
    for what, why in found["disabled"].items():
        if what.rpartition(" ")[2] not in shown or " " not in what:
            yield clean(f"The plug-in {what} is disabled: {why}")
    if found["manifests"]:
        yield _section(found, "manifests", ("name", "task", "engine", "placement", "model", "aliases", "file")).rstrip()
    else:
        yield f"There is no manifest in {found['folder']} that can be served."
    trusted = [row["name"] for row in found["manifests"] if row["remote_code"]]
    if trusted:
        yield clean(f"Python code in the model's own folder runs for: {', '.join(trusted)} ({', '.join(consents)})")
    for problem in found["problems"]:
        place = f"{problem['file']}:{problem['line']}" if problem["line"] else problem["file"]
        yield clean(": ".join(part for part in ("not served", place, problem["key"], problem["message"]) if part))


def _section(found: dict[str, Any], name: str, keys: tuple[str, ...]) -> str:
    head = (name.removesuffix("s"), *keys[1:])
    return table(head, [[_shown(row[key]) for key in keys] for row in found[name]]) + "\n"


def _shown(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else value
