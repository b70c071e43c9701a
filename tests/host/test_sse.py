"""Streams as server-sent events, without a server."""

from typing import Any

import pytest

from host.http.sse import EventStream

pytestmark = pytest.mark.anyio


class Numbers:
    """A stream of numbers that notes whether it was closed."""

    closed = False

    def __init__(self) -> None:
        self._left = iter(range(3))

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> int:
        for number in self._left:
            return number
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed = True

    def stage(self) -> str:
        return "queued"


class Renderer:
    """Renders numbers; cannot render 1."""

    def __call__(self, answer: int) -> list[bytes]:
        if answer == 1:
            raise ValueError("a renderer's own fault")
        return [b"data: %d\n\n" % answer]

    def end(self) -> list[bytes]:
        return []


async def test_a_stream_whose_answers_cannot_be_rendered_is_closed():
    stream, sent = Numbers(), []

    async def send(message: Any) -> None:
        sent.append(message)

    await EventStream(stream, Renderer()).send(send)
    assert stream.closed
    body = b"".join(message.get("body", b"") for message in sent)
    assert body.startswith(b"data: 0\n\n") and b'"error"' in body and b"own fault" not in body
