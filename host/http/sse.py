"""A stream of answers as server-sent events: no status before the first answer, comments while one waits.

A renderer, one for each wire format, turns answers into frames; clients that leave close the stream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from litestar import Response
from litestar.types import Receive, Scope, Send

from host.errors import ColdframeError
from host.function import Stream
from host.http.errors import error_object, internal

A_contra = TypeVar("A_contra", contravariant=True)
A = TypeVar("A")

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = 10.0
"""Seconds without news after which a comment is sent; before the first one, errors still get their own status."""


class Renderer(Protocol[A_contra]):
    """Turns answers into frames of one wire format; a fresh one for each response, so it may keep state."""

    def __call__(self, answer: A_contra) -> Iterable[bytes]:
        """Return the frames of one answer, each as `frame` makes them."""

    def end(self) -> Iterable[bytes]:
        """Return the frames that follow the last answer of a stream that ended well, `DONE` included if wanted."""


def frame(data: bytes | msgspec.Struct | dict[str, Any], event: str | None = None) -> bytes:
    """Return one server-sent event with `data` as its JSON (bytes are JSON already)."""
    text = data if isinstance(data, bytes) else msgspec.json.encode(data)
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + text + b"\n\n"


class EventStream(Response[Any], Generic[A]):
    """The response a handler returns for `stream: true`: `return EventStream(host.stream(...), Renderer())`.

    The first answer is awaited before the status is sent, so what is wrong with the request, the queue or the load
    gets its own status. After `KEEP_ALIVE` seconds the stream opens with a comment, and an error becomes one
    `data: {"error": …}` frame and `[DONE]`.
    """

    def __init__(self, stream: Stream[A], renderer: Renderer[A]) -> None:
        super().__init__(content=None, media_type="text/event-stream")
        self._stream = stream
        self._renderer = renderer
        self._wire: _Wire | None = None

    def to_asgi_response(self, *args: Any, **kwargs: Any) -> Any:
        """Return the ASGI application that sends this response."""
        return self._send

    @property
    def begun(self) -> bool:
        """Whether the status was sent."""
        return self._wire is not None and self._wire.open

    async def send(self, send: Send) -> None:
        """Send the stream; raises what is wrong before anything was sent."""
        self._wire = _Wire(send)
        try:
            await self._pump(self._wire)
        finally:
            await self._stream.aclose()

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.send(send)

    async def _pump(self, wire: _Wire) -> None:
        comments = asyncio.get_running_loop().create_task(self._comment(wire))
        try:
            async for answer in self._stream:
                await wire.write(b"".join(self._renderer(answer)))
            await wire.write(b"".join(self._renderer.end()))
        except Exception as error:
            await _ended(comments)
            if not wire.open:
                raise
            shown = error if isinstance(error, ColdframeError) else internal(error)
            await wire.write(frame({"error": error_object(shown)}) + DONE)
        finally:
            await _ended(comments)
        await wire.end()

    async def _comment(self, wire: _Wire) -> None:
        """Write a comment whenever nothing was written for `KEEP_ALIVE` seconds; one task for the whole stream."""
        while True:
            quiet = time.monotonic() - wire.written
            if quiet < KEEP_ALIVE:
                await asyncio.sleep(KEEP_ALIVE - quiet)
            else:
                await wire.write(b": loading " + self._stream.stage().encode() + b"\n\n")


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class _Wire:
    """The sending side: the status goes out with the first bytes. What two tasks write does not mix."""

    _HEADERS = (
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    )

    def __init__(self, send: Send) -> None:
        self._send = send
        self._turn = asyncio.Lock()
        self.open = False
        self.written = time.monotonic()

    async def write(self, data: bytes) -> None:
        """Send bytes; the status first, where it is not sent yet."""
        if data:
            await self._write(data, more=True)

    async def end(self) -> None:
        """End the response."""
        await self._write(b"", more=False)

    async def _write(self, data: bytes, *, more: bool) -> None:
        async with self._turn:
            if not self.open:
                self.open = True
                await self._send({"type": "http.response.start", "status": 200, "headers": list(self._HEADERS)})
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
            self.written = time.monotonic()


__all__ = ("DONE", "EventStream", "Renderer", "frame")
