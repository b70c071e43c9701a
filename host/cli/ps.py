"""`coldframe ps`: the deployments of a running host, from `GET /v1/functions`."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import click

from host.byte_size import spoken
from host.cli import client
from host.cli.defaults import url as place_of
from host.cli.defaults import url_option
from host.cli.table import clean, span, table
from host.lifecycle.status import Status
from host.state import State

_EVERY = 1.0
_HEAD = ("name", "task", "state", "pid", "memory", "slots", "in flight", "queued", "idle left", "progress")


@click.command("ps")
@url_option
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
@click.option("--json", "json_", is_flag=True, help="Print the host's own JSON instead of a table.")
def ps_command(url: str | None, watch: bool, json_: bool) -> None:
    """Show what a running host serves, and what of it is loaded.

    SLOTS is sequences side by side x tokens of context for each. IDLE LEFT is the time until the instance is evicted,
    if no work comes. Looking wakes nothing.
    """
    place = place_of(url)
    if not watch:
        _show(place, json_=json_)
        return
    stop = threading.Event()
    # Python loses an interrupt that comes while an object is being thrown away: the event keeps it.
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    _show(place, json_=json_)
    while not stop.wait(_EVERY):
        _show(place, json_=json_, clear=sys.stdout.isatty())


def _show(place: str, *, json_: bool, clear: bool = False) -> None:
    body = client.get(place, "/v1/functions")
    text = "\n".join(_lines(client.served(place, body), place))
    click.echo("\x1b[H\x1b[2J" if clear else "", nl=False)
    click.echo(body.decode() if json_ else text)


def _lines(served: client.Served, place: str) -> Iterator[str]:
    if served.data:
        yield table(_HEAD, [_row(status) for status in served.data])
    else:
        yield f"The host at {place} serves no manifest."
    for status in served.data:
        error = status.last_error
        if error is not None:
            ago = span(round(max(0.0, time.time() - error.at)))
            yield clean(f"{status.name}: {ago} ago: {error.message} ({error.code})")
    for problem in served.problems:
        yield clean(f"not served{_note(problem)}: {_problem(problem)}")


def _row(status: Status) -> tuple[object, ...]:
    return (
        status.name,
        status.task,
        status.state,
        status.pid,
        memory(status.bytes),
        slots(status),
        status.in_flight,
        status.waiting,
        _idle(status),
        progress(status),
    )


def memory(pools: dict[str, int]) -> str | None:
    """Return what a plan reserved: `120 MB`, and the pools by name where RAM is not all."""
    if set(pools) <= {"ram"}:
        return spoken(pools["ram"]) if pools else None
    return ", ".join(f"{pool} {spoken(count)}" for pool, count in pools.items())


def slots(status: Status) -> str | None:
    """Return slots x context, as far as they are known."""
    if status.slots is None:
        return None
    return f"{status.slots}" if status.context is None else f"{status.slots} x {status.context}"


def progress(status: Status) -> str | None:
    """Return how far a load is, or when a failed one may be tried again."""
    if status.progress is not None:
        return str(status.progress)
    return f"retry in {span(round(status.cooldown_left, 1))}" if status.cooldown_left else None


def _idle(status: Status) -> str | None:
    if status.idle is None:
        return "never" if status.state is State.READY else None
    return None if status.idle_left is None else span(round(status.idle_left, 1))


def _note(problem: dict[str, Any]) -> str:
    return " as it stands, the last good one is" if problem.get("serving_last_good") else ""


def _problem(problem: dict[str, Any]) -> str:
    place = f"{problem.get('file')}:{problem['line']}" if problem.get("line") else str(problem.get("file"))
    return ": ".join(str(part) for part in (place, problem.get("key"), problem.get("message")) if part)


__all__ = ("memory", "progress", "ps_command", "slots")
