"""Server-sent events as they come out of a response: the data of each, and what comments say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

END = b"[DONE]"


async def events(pieces: AsyncIterator[bytes], comment: Callable[[str], None] | None = None) -> AsyncIterator[bytes]:
    """Yield the data of each event, until `[DONE]` or the end; comments go to `comment`."""
    buffer = b""
    async for piece in pieces:
        buffer = (buffer + piece).replace(b"\r\n", b"\n")
        *frames, buffer = buffer.split(b"\n\n")
        for frame in frames:
            lines = frame.split(b"\n")
            if comment is not None:
                for line in lines:
                    if line.startswith(b":"):
                        comment(line[1:].strip().decode(errors="replace"))
            data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
            if data == END:
                return
            if data:
                yield data
