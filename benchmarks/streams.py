"""A light generator of chat streams: raw HTTP on an event loop, and the moment each token came.

It knows OpenAI's server-sent events, and nothing of what answers them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import uvloop

_TEXT, _NONE, _END = b'"content":"', b'"content":""', b"data: [DONE]"


@dataclass(slots=True)
class Stream:
    """One answer: when it was asked for, and when its tokens came."""

    asked: float
    times: list[float] = field(default_factory=list)

    @property
    def first(self) -> float:
        """Seconds to the first token."""
        return self.times[0] - self.asked

    @property
    def gaps(self) -> list[float]:
        """Seconds between tokens; those that came in one piece came at once."""
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


@dataclass(slots=True)
class Round:
    """Streams that ran side by side."""

    streams: list[Stream]

    @property
    def rate(self) -> float:
        """Tokens per second of all streams, from the first question to the last token."""
        began = min(stream.asked for stream in self.streams)
        return sum(len(stream.times) for stream in self.streams) / (self.ended - began)

    @property
    def ended(self) -> float:
        """When the last token came."""
        return max(stream.times[-1] for stream in self.streams)


def ask(port: int, bodies: Sequence[dict[str, Any]], every: float = 0.0) -> Round:
    """Ask all of it, one question `every` so many seconds, and return when all answers are complete."""
    return Round(uvloop.run(_ask(port, bodies, every)))


async def _ask(port: int, bodies: Sequence[dict[str, Any]], every: float) -> list[Stream]:
    return await asyncio.gather(*(_one(port, body, every * index) for index, body in enumerate(bodies)))


async def _one(port: int, body: dict[str, Any], delay: float) -> Stream:
    await asyncio.sleep(delay)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Stream] = loop.create_future()
    data = json.dumps({**body, "stream": True}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(data)}\r\n\r\n".encode() + data
    transport, _ = await loop.create_connection(lambda: _Reader(request, done), "127.0.0.1", port)
    try:
        return await asyncio.wait_for(done, 60)
    finally:
        transport.close()


class _Reader(asyncio.Protocol):
    """Counts tokens as they come; a frame that arrives in halves counts when its second half does."""

    def __init__(self, request: bytes, done: asyncio.Future[Stream]) -> None:
        self._request = request
        self._done = done
        self._rest = b""
        self._stream = Stream(time.perf_counter())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stream.asked = time.perf_counter()
        cast("asyncio.Transport", transport).write(self._request)  # uvloop's is one without deriving from it

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        whole, _, self._rest = (self._rest + data).rpartition(b"\n")
        tokens = whole.count(_TEXT) + whole.count(_TEXT.replace(b":", b": "))
        self._stream.times += [now] * (tokens - whole.count(_NONE) - whole.count(_NONE.replace(b":", b": ")))
        if _END in whole or _END in self._rest:
            self._settle(None)
        elif not self._stream.times and whole.startswith(b"HTTP/1.1 ") and not whole.startswith(b"HTTP/1.1 200"):
            self._settle(RuntimeError(whole.decode(errors="replace")))

    def connection_lost(self, error: Exception | None) -> None:
        self._settle(error or ConnectionError("the answer broke off"))

    def _settle(self, error: Exception | None) -> None:
        if self._done.done():
            return
        if error is None and not self._stream.times:
            error = RuntimeError("the answer has no text")
        if error is not None:
            self._done.set_exception(error)
        else:
            self._done.set_result(self._stream)
