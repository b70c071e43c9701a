"""`/v1/functions`: the life of every deployment, as a list, as a stream of events, and to load and unload by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Literal

import msgspec
from litestar import get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery
from litestar.response import Stream

from host.catalog import Problem
from host.errors import NotFound, ShuttingDown
from host.events import Event
from host.http import sse
from host.lifecycle.deployment import Superseded
from host.lifecycle.status import Status
from host.routes.runtime_dependency import RuntimeDependency
from host.runtime import Runtime
from host.state import State

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_BACKLOG = 10_000
"""Events a reader may be behind before the oldest are dropped."""


class FunctionList(msgspec.Struct, kw_only=True, frozen=True):
    """Every deployment, and what is wrong with manifests that are not served as they stand."""

    object: Literal["list"] = "list"
    data: list[Status]
    problems: list[Problem]


class Unloaded(msgspec.Struct, kw_only=True, frozen=True):
    """The answer to `unload`."""

    name: str
    state: State
    unloaded: bool
    """Whether anything was loaded."""


@get("/v1/functions", summary="List deployments and their states")
async def list_functions(runtime: RuntimeDependency) -> FunctionList:
    """List every deployment. Wakes nothing."""
    return FunctionList(data=[d.status() for d in runtime.catalog], problems=list(runtime.catalog.problems.values()))


@get(
    "/v1/functions/events",
    summary="Stream life-cycle events",
    responses={200: ResponseSpec(data_container=str, media_type="text/event-stream", description="Server-sent events")},
)
async def stream_events(runtime: RuntimeDependency, name: FromQuery[str | None] = None) -> Stream:
    """Stream events as they happen, those of one deployment when `name` is given; first a `status` event for each."""
    if name is not None:
        name = runtime.catalog.find(name).name
    return Stream(_events(runtime, name), media_type="text/event-stream", headers=_HEADERS)


@get("/v1/functions/{name:path}", summary="One deployment and its state")
async def get_function(runtime: RuntimeDependency, name: FromPath[str]) -> Status:
    """Return one deployment, by name or alias; names may hold slashes. Wakes nothing."""
    return runtime.catalog.find(name.lstrip("/")).status()


@post("/v1/functions/{name:path}", status_code=200, summary="Load or unload by hand")
async def load_or_unload(runtime: RuntimeDependency, name: FromPath[str]) -> Status | Unloaded:
    """Load a deployment and return when it is ready, or drain and unload it; a cool-down is skipped."""
    model, _, verb = name.strip("/").rpartition("/")
    if not model or verb not in ("load", "unload"):
        raise NotFound("Expected /v1/functions/NAME/load or /v1/functions/NAME/unload.")
    if verb == "unload":
        deployment = runtime.catalog.find(model)
        done = await deployment.unload()
        return Unloaded(name=deployment.name, state=deployment.state, unloaded=done)
    while True:
        if runtime.dispatch.stopping:
            raise ShuttingDown("The host is shutting down.", retry_after=5.0)
        deployment = runtime.catalog.find(model)
        with contextlib.suppress(Superseded):  # its manifest changed meanwhile: look it up again
            await deployment.load()
            return deployment.status()


async def _events(runtime: Runtime, name: str | None) -> AsyncIterator[bytes]:
    queue: asyncio.Queue[Event] = asyncio.Queue(_BACKLOG)

    def put(event: Event) -> None:
        if name is None or event.name == name:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    with runtime.listening(put):
        for deployment in list(runtime.catalog):
            if name is None or deployment.name == name:
                yield sse.frame(deployment.status(), event="status")
        stopped = asyncio.ensure_future(runtime.dispatch.stopped())
        getting = asyncio.ensure_future(queue.get())
        try:
            while not stopped.done():
                await asyncio.wait({getting, stopped}, timeout=sse.KEEP_ALIVE, return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    event = getting.result()
                    getting = asyncio.ensure_future(queue.get())
                    yield sse.frame(event, event=str(type(event).__struct_config__.tag))
                elif not stopped.done():
                    yield b": keep-alive\n\n"
        finally:
            getting.cancel()
            stopped.cancel()
