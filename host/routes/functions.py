"""`/v1/functions`: the life of every deployment, as a list, as a stream of events, and to load and unload by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
from litestar import Request, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery
from litestar.response import Stream

from host.catalog import Problem
from host.errors import NotFound
from host.events import Event, State
from host.http.sse import KEEP_ALIVE, frame
from host.lifecycle.status import Status
from host.routes.dependency import RuntimeDependency
from host.runtime import Runtime

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
    return Stream(_events(runtime, name), media_type="text/event-stream", headers={"cache-control": "no-cache"})


@post("/v1/functions/{action:path}", status_code=200, summary="Load or unload by hand")
async def load_or_unload(
    request: Request[Any, Any, Any],
    runtime: RuntimeDependency,
    action: FromPath[str],
) -> Status | Unloaded:
    """Load a deployment and return when it is ready, or drain and unload it; a cool-down is skipped."""
    name, _, verb = action.strip("/").rpartition("/")
    if not name or verb not in ("load", "unload"):
        raise NotFound("Expected /v1/functions/NAME/load or /v1/functions/NAME/unload.")
    deployment = runtime.catalog.find(name)
    if verb == "load":
        await deployment.load()
        return deployment.status()
    done = await deployment.unload()
    return Unloaded(name=deployment.name, state=deployment.state, unloaded=done)


async def _events(runtime: Runtime, name: str | None) -> AsyncIterator[bytes]:
    queue: asyncio.Queue[Event] = asyncio.Queue(_BACKLOG)

    def put(event: Event) -> None:
        if name is None or event.name == name:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    with runtime.listening(put):
        for deployment in runtime.catalog:
            if name is None or deployment.name == name:
                yield frame(deployment.status(), event="status")
        while not runtime.dispatch.stopping:
            try:
                event = await asyncio.wait_for(queue.get(), KEEP_ALIVE)
            except TimeoutError:
                yield b": keep-alive\n\n"
                continue
            yield frame(event, event=str(type(event).__struct_config__.tag))
