"""`coldframe run`: one call of one function, by a running host or, where there is none, in a host of its own for it.

Both take the same way: a JSON body to the function's route. What the function means by words it says itself (`Cli`).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from host.cli import Failure, client
from host.cli.defaults import manifests_option, url_option
from host.cli.defaults import url as place_of
from host.cli.progress import Line
from host.function import Cli, Function

if TYPE_CHECKING:
    from host.catalog import Entry
    from host.cli.exchange import Screen
    from host.events import Event

INSIDE = "http://inside"
"""The address of a host that is this process."""


@click.command("run")
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[WORD | KEY=VALUE]...")
@url_option
@manifests_option
@click.option("--json", "json_", metavar="BODY", help="The whole JSON body of the request; - reads standard input.")
@click.option("--operation", metavar="OPERATION", help="Which of the function's operations.  [default: its first]")
@click.option("--raw", is_flag=True, help="Print the JSON of answers and events, not the text in them.")
@click.option("-v", "--verbose", is_flag=True, help="Show the log of what happens in this process.")
@click.option("--no-host", is_flag=True, help="Ask no running host: open the manifest in this process.")
@click.option("--inline", is_flag=True, help="The same, with the instance in this process too: for debuggers.")
def run_command(
    name: str,
    words: tuple[str, ...],
    url: str | None,
    manifests: Path | None,
    json_: str | None,
    operation: str | None,
    raw: bool,
    verbose: bool,
    no_host: bool,
    inline: bool,
) -> None:
    """Call the function NAME once and print its answer as it comes.

    Plain words are what a person would say: the message to a chat model, the text to embed. A lone - reads them from
    standard input. KEY=VALUE sets a field of the request, VALUE being JSON or text: temperature=0.2.

    A host that runs at the URL is asked. Where none does, or with --no-host, --inline or --manifests, the manifest is
    opened here and everything is given back at the end. NAME may then be a manifest file, too.
    """
    from host.cli import logs

    logs.set_up("info" if verbose else "critical")
    said = click.get_current_context().get_parameter_source("url") is ParameterSource.COMMANDLINE
    if said and (no_host or inline or manifests is not None):
        raise click.UsageError("--url asks a running host; --no-host, --inline and --manifests do without one")
    status = None
    place = None
    if not (no_host or inline or manifests is not None):
        place = place_of(url)
        status = _served(place, name, must=url is not None)
    call = _Call(name, words, json_, operation, raw)
    if status is not None and place is not None:
        _finish(call.by_host(place, status.task))
    else:
        _finish(call.here(_entry(name, manifests), inline))


class _Call:
    """What was asked for, to be sent to a host."""

    def __init__(self, name: str, words: tuple[str, ...], json: str | None, operation: str | None, raw: bool) -> None:
        self.name = name
        self._words = words
        self._json = json
        self._operation = operation
        self._raw = raw

    async def by_host(self, place: str, task: str) -> None:
        """Ask a running host."""
        import httpx

        from host.registry import Registry

        function = Registry.discover().functions.get(task)
        if function is None:
            raise Failure(f"`{self.name}` is a function `{task}`, which no plug-in here knows: ask it over HTTP")
        path, body, screen = self._prepare(function, self.name)
        timeout = httpx.Timeout(None, connect=client.QUICK)
        with Line() as line:
            line.show(f"{self.name} …")
            async with httpx.AsyncClient(timeout=timeout, trust_env=False) as http:
                await self._ask(http, place, path, body, screen, line)

    async def here(self, entry: Entry, inline: bool) -> None:
        """Open the manifest in this process and ask its route, without a socket in between."""
        import httpx

        from host import app
        from host.cli.asgi_transport import AsgiTransport
        from host.direct import open_function

        name = self.name if self.name in (entry.manifest.name, *entry.manifest.aliases) else entry.manifest.name
        path, body, screen = self._prepare(entry.function, name)
        async with open_function(entry.file, placement="inline" if inline else None) as opened:
            with Line() as line, opened.runtime.listening(_shower(line)):
                transport = AsgiTransport(app.create(opened.runtime))
                async with httpx.AsyncClient(transport=transport, timeout=None) as http:  # noqa: S113 - loads take long
                    await self._ask(http, INSIDE, path, body, screen, line)

    def _prepare(self, function: Function, name: str) -> tuple[str, dict[str, Any], Screen]:
        from host.cli import request_body
        from host.cli.exchange import Screen

        operation = request_body.operation(function, self._operation)
        assert operation.path is not None
        first = operation is request_body.operation(function, None)
        shell = _shell(function) if first else None
        body = request_body.body(name, self._words, self._json, shell, sys.stdin)
        return operation.path, body, Screen(None if self._raw else shell)

    async def _ask(self, http: Any, place: str, path: str, body: dict[str, Any], screen: Screen, line: Line) -> None:
        from host.cli.exchange import ask

        await ask(http, place, path, body, screen, line)


def _served(place: str, name: str, *, must: bool) -> Any:
    """Return what the host at the URL says of the function; None where no host answers and none has to."""
    try:
        served = client.functions(place)
    except client.NoHost:
        if must:
            raise
        return None
    status = served.find(name)
    if status is None:
        names = ", ".join(sorted(found.name for found in served.data)) or "nothing"
        raise Failure(
            f"the host at {place} does not serve `{name}`; it serves: {names}. "
            "With --no-host the manifest is opened in this process"
        )
    return status


def _entry(name: str, manifests: Path | None) -> Entry:
    """Return the manifest to open: the file that was named, else the one of that name."""
    from host.catalog import SUFFIXES
    from host.cli.manifests import ManifestSet

    if name.endswith(SUFFIXES) and Path(name).is_file():
        (entry,) = _only(ManifestSet(Path(name)))
        return entry
    return ManifestSet(manifests).find(name)


def _only(shelf: Any) -> list[Entry]:
    from host.cli.manifests import located

    entries, problems = shelf.read()
    if problems:
        raise Failure(located(problems[0]))
    return list(entries)


def _shell(function: Function) -> Cli | None:
    if function.cli is None:
        return None
    module, _, kind = function.cli.partition(":")
    shell: Cli = getattr(importlib.import_module(module), kind)()
    return shell


def _shower(line: Line) -> Any:
    from host.events import LoadProgressed
    from host.lifecycle.status import LoadProgress

    def show(event: Event) -> None:
        if isinstance(event, LoadProgressed):
            line.show(f"{event.name}: {LoadProgress(stage=event.stage, done=event.done, total=event.total)}")

    return show


def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run it to its end; Ctrl-C and SIGTERM end it early, and everything is given back first."""
    ended_by: list[int] = []

    async def until_told() -> None:
        task = asyncio.get_running_loop().create_task(work)

        def end(number: int) -> None:
            ended_by.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, end, number)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(until_told())
    if ended_by:
        sys.exit(128 + ended_by[0])
