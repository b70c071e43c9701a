"""Vectors as OpenAI's JSON: lists of numbers, or base64 of little-endian float32. It knows no model and no HTTP."""

from __future__ import annotations

import array
import asyncio
import binascii
import sys
from collections.abc import Iterator

import msgspec

from functions.embeddings.api import Vectors

_BREATH = 32_768
"""Numbers written before other work of the event loop gets its turn: about 4 ms."""


async def render(vectors: Vectors, *, model: str, base64: bool) -> bytes:
    """Return the body of the response; `model` is echoed as it was requested."""
    pieces: list[bytes] = []
    written = 0
    for piece in _items(vectors, base64=base64):
        pieces.append(piece)
        written += vectors.dimension
        if written >= _BREATH and not base64:
            written = 0
            await asyncio.sleep(0)
    tokens = vectors.usage.prompt_tokens
    usage = b'"usage":{"prompt_tokens":%d,"total_tokens":%d}' % (tokens, tokens)
    name = msgspec.json.encode(model)
    return b'{"object":"list","model":%b,%b,"data":[%b]}' % (name, usage, b",".join(pieces))


def _items(vectors: Vectors, *, base64: bool) -> Iterator[bytes]:
    size = 4 * vectors.dimension
    encode = _text if base64 else _numbers
    for index, start in enumerate(range(0, len(vectors.data), size)):
        embedding = encode(vectors.data[start : start + size])
        yield b'{"object":"embedding","index":%d,"embedding":%b}' % (index, embedding)


def _text(data: bytes) -> bytes:
    return b'"%b"' % binascii.b2a_base64(data, newline=False)


def _numbers(data: bytes) -> bytes:
    numbers = array.array("f", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return msgspec.json.encode(numbers.tolist())
