"""`coldframe check`: manifests against their type, their engine's options and what is installed; nothing is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from host.cli.table import span
from host.errors import ManifestError

if TYPE_CHECKING:
    from host.cli.manifests import ManifestSet


@click.command("check")
@click.argument("paths", metavar="PATH...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--schema", is_flag=True, help="Print the JSON schema of manifests, for editors, and check nothing.")
@click.pass_context
def check_command(ctx: click.Context, paths: tuple[Path, ...], schema: bool) -> None:
    """Check manifests: files, or all files of folders.

    What is wrong is printed as `file:line: key: message`, one line each, and ends with status 1. What is right is
    printed with every default filled in. Names have to be unique over everything that is given. Nothing is downloaded.
    """
    from host.cli import logs
    from host.cli.manifests import ManifestSet

    logs.set_up()
    if schema:
        click.echo(_schema(ManifestSet()))
        return
    if not paths:
        raise click.UsageError("name at least one manifest or folder, or say --schema", ctx)
    shelf, names = ManifestSet(), dict[str, Path]()
    wrong = [file for file in _files(paths) if _check(file, shelf, names)]
    if wrong:
        ctx.exit(1)


def _files(paths: tuple[Path, ...]) -> Iterator[Path | ManifestError]:
    """Yield the files, each once, and what is wrong with a path that gives none."""
    from host.catalog import manifest_files

    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            yield ManifestError("no such file or folder", file=path)
            continue
        found = manifest_files(path) if path.is_dir() else [path]
        if not found:
            yield ManifestError("this folder has no manifest: no file ends in .yaml or .yml", file=path)
        for file in found:
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield file


def _check(file: Path | ManifestError, shelf: ManifestSet, names: dict[str, Path]) -> bool:
    """Check one file, print what there is to say, and return whether something is wrong."""
    try:
        if isinstance(file, ManifestError):
            raise file
        click.echo(_good(file, shelf, names))
    except ManifestError as error:
        click.echo(" ".join(str(error).split()))
        return True
    return False


def _good(file: Path, shelf: ManifestSet, names: dict[str, Path]) -> str:
    import yaml

    from host.cli.manifests import resolved
    from host.manifest import load

    manifest, document = load(file)
    for key, name in (("name", manifest.name), *(("aliases", alias) for alias in manifest.aliases)):
        taken = names.setdefault(name, file)
        if taken is not file or (key == "aliases" and manifest.aliases.count(name) + (name == manifest.name) > 1):
            message = "stands here twice" if taken is file else f"is taken by {taken}"
            raise document.error(f"the name `{name}` {message}", (key,) if key in document.data else ())
    function, engine = shelf.check(manifest, document)
    data = resolved(manifest, document, function, engine)
    data["idle"] = span(data["idle"])
    data["queue"]["wait"] = span(data["queue"]["wait"])
    return f"# {file}: ok\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True)}"


def _schema(shelf: ManifestSet) -> str:
    from host.manifest import schema

    registry = shelf.registry
    functions = registry.functions.values()
    own = [((function.name, *function.tasks), tuple(function.instances), function.options) for function in functions]
    tasks = [word for words, _, _ in own for word in words]
    found: dict[str, Any] = schema({name: engine.options for name, engine in registry.engines.items()}, tasks, own)
    return json.dumps(found, indent=2)
