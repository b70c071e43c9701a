"""`coldframe serve`: settings and manifests in, a running host until SIGTERM or Ctrl-C.

The way to the first answer is kept short: neither rich nor an HTTP client is imported here.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from host import __version__
from host.cli import Misuse
from host.cli.defaults import manifests_option, settings, with_manifests
from host.errors import ColdframeError, ManifestError
from host.settings import Settings, address

if TYPE_CHECKING:
    from host.runtime import Runtime


def _address(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else address(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("serve")
@manifests_option
@click.option("--only", metavar="NAME", help="Serve only the manifest of that name or alias: a container per function.")
@click.option("--host", "host_", metavar="HOST", callback=_address, help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.  [default: 8000]")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings.  [default: ./granian.toml, else the shipped one]",
)
def serve_command(
    manifests: Path | None, only: str | None, host_: str | None, port: int | None, config: Path | None
) -> None:
    """Serve every manifest of a folder until SIGTERM or Ctrl-C.

    Nothing is loaded before it is called. Manifests are watched: files that come, change or go take effect at once. An
    option comes before granian.toml, and that before the environment variable PORT. On the first Ctrl-C calls in flight
    may end; a second one ends everything at once.

    Logs go to standard error; standard output gets the URL and the table of what is served.
    """
    try:
        found = with_manifests(settings(config), manifests)
        found = msgspec.structs.replace(
            found, address=host_ or found.address, port=found.port if port is None else port
        )
        _serve(found, only)
    except ColdframeError as error:
        raise Misuse(str(error)) from None


def _serve(found: Settings, only: str | None) -> None:
    import uvloop
    from granian.errors import ConfigurationError, FatalError

    from host.runtime import Runtime
    from host.serve import serve
    from host.telemetry import set_up_logging

    set_up_logging(found.log, found.log_level)
    runtime = Runtime(found, only=only)
    if only is not None:
        _check_only(runtime, only)
    if not found.loopback:
        click.echo(
            f"WARNING: {found.address} can be reached from other machines, and there is no authentication yet: "
            "everybody who can connect can use and unload every model.",
            err=True,
        )
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(runtime, lambda url: _tell(runtime, url)))
    except (ConfigurationError, FatalError, OSError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise Misuse(f"the server cannot start with these settings: {reason}") from None


def _check_only(runtime: Runtime, only: str) -> None:
    """Raise `ManifestError` unless a manifest that can be served has the name, with what there is instead."""
    from host.catalog import read_folder

    entries, problems = read_folder(runtime.settings.manifests, runtime.check, adapters=runtime.registry.adapters)
    names = [entry.manifest.name for entry in entries.values()]
    if only in names or any(only in entry.manifest.aliases for entry in entries.values()):
        return
    broken = [_problem(problem) for problem in problems.values()]
    message = f"no manifest is named `{only}`; there are: {', '.join(sorted(names)) or 'none'}"
    raise ManifestError(message + (f"; not usable: {'; '.join(broken)}" if broken else ""), key="--only")


def _tell(runtime: Runtime, url: str) -> None:
    """Print where the host is and what it serves."""
    from host.cli.table import table

    port = int(url.rpartition(":")[2])  # a free one was taken for 0
    place = msgspec.structs.replace(runtime.settings, port=port).url
    lines = [f"coldframe {__version__} serves {place}", ""]
    rows = [(s.name, s.task, s.engine, s.placement, s.model) for s in (d.status() for d in runtime.catalog)]
    if rows:
        lines.append(table(("name", "task", "engine", "placement", "model"), sorted(rows)))
    else:
        lines.append(f"There is no manifest in {runtime.settings.manifests} yet; put one there and it is served.")
    lines += [f"Not served: {_problem(problem)}" for problem in runtime.catalog.problems.values()]
    click.echo("\n".join(lines) + "\n")


def _problem(problem: Any) -> str:
    place = f"{problem.file}:{problem.line}" if problem.line else problem.file
    return ": ".join(part for part in (place, problem.key, problem.message) if part)
