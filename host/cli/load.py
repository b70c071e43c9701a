"""`coldframe load` and `coldframe unload`: load or unload a deployment of a running host."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote

import click
import msgspec

from host.cli import Failure, client
from host.cli.defaults import url as place_of
from host.cli.defaults import url_option
from host.cli.events import events
from host.cli.progress import Line
from host.cli.ps import memory, slots
from host.lifecycle.status import LoadProgress, Status

if TYPE_CHECKING:
    import httpx


@click.command("load")
@click.argument("name")
@url_option
def load_command(name: str, url: str | None) -> None:
    """Load the function NAME of a running host, and wait until it is ready.

    Without this, the first call loads it. A cool-down after failed loads is skipped.
    """
    place = place_of(url)
    status = _find(place, name)
    with Line() as line:
        done = asyncio.run(_load(place, status.name, line))
    facts = (
        memory(done.bytes),
        f"slots {slots(done)}" if slots(done) else None,
        f"pid {done.pid}" if done.pid else None,
    )
    click.echo(f"{done.name} is {done.state}" + "".join(f", {part}" for part in facts if part))


@click.command("unload")
@click.argument("name")
@url_option
def unload_command(name: str, url: str | None) -> None:
    """Unload the function NAME of a running host: calls in flight may end, then its memory is given back.

    The next call loads it again.
    """
    place = place_of(url)
    status = _find(place, name)
    done = msgspec.json.decode(client.post(place, _path(status.name, "unload")))
    click.echo(f"{status.name} is {done['state']}" + ("" if done["unloaded"] else "; nothing was loaded"))


def _find(place: str, name: str) -> Status:
    served = client.functions(place)
    found = served.find(name)
    if found is None:
        names = ", ".join(sorted(status.name for status in served.data)) or "nothing"
        raise Failure(f"the host at {place} does not serve `{name}`; it serves: {names}")
    return found


def _path(name: str, verb: str) -> str:
    return f"/v1/functions/{quote(name)}/{verb}"


async def _load(place: str, name: str, line: Line) -> Status:
    """Ask for the load, and show its progress from the host's event stream."""
    import httpx

    async with httpx.AsyncClient(timeout=httpx.Timeout(None, connect=client.QUICK), trust_env=False) as http:
        watching = asyncio.get_running_loop().create_task(_watch(http, place, name, line))
        try:
            with client.failures(place):
                response = await http.post(place + _path(name, "load"))
            return msgspec.json.decode(client.answer(response, place), type=Status)
        finally:
            watching.cancel()
            # What the stream had to say does not matter any more, nor whether it could be had.
            await asyncio.gather(watching, return_exceptions=True)


async def _watch(http: httpx.AsyncClient, place: str, name: str, line: Line) -> None:
    async with http.stream("GET", f"{place}/v1/functions/events", params={"name": name}) as response:
        async for data in events(response.aiter_bytes()):
            event = msgspec.json.decode(data)
            if event.get("event") == "progress":
                line.show(f"{name}: {LoadProgress(stage=event['stage'], done=event['done'], total=event['total'])}")
            elif event.get("event") == "state":
                line.show(f"{name}: {event['new']}")
