"""Vectors as OpenAI's JSON: lists of numbers, or base64 of little-endian float32. It knows no model and no HTTP."""

from __future__ import annotations

import array
import asyncio
import binascii
import sys
from collections.abc import Callable, Iterator
from itertools import accumulate

import msgspec

from functions.embeddings.api import Rows, Sparse, Vectors

_BREATH = 32_768
"""Numbers written before other work of the event loop gets its turn: about 4 ms."""

Piece = tuple[bytes, int]
"""JSON, and how many numbers were written for it."""


async def render(vectors: Vectors, *, model: str, base64: bool, several: bool = False) -> bytes:
    """Return the body of the response; `model` is echoed as it was requested.

    With `several` each embedding is an object with a key for each kind, else it is the only kind there is.
    """
    pieces: list[bytes] = []
    written = 0
    for index, (embedding, numbers) in enumerate(_embeddings(vectors, base64=base64, several=several)):
        pieces.append(b'{"object":"embedding","index":%d,"embedding":%b}' % (index, embedding))
        written += numbers
        if written >= _BREATH:
            written = 0
            await asyncio.sleep(0)
    tokens = vectors.usage.prompt_tokens
    usage = b'"usage":{"prompt_tokens":%d,"total_tokens":%d}' % (tokens, tokens)
    name = msgspec.json.encode(model)
    return b'{"object":"list","model":%b,%b,"data":[%b]}' % (name, usage, b",".join(pieces))


def _embeddings(vectors: Vectors, *, base64: bool, several: bool) -> Iterator[Piece]:
    kinds: dict[str, Iterator[Piece]] = {}
    if vectors.dimension:
        kinds["dense"] = _dense(vectors, base64=base64)
    if vectors.sparse is not None:
        kinds["sparse"] = _sparse(vectors.sparse)
    if vectors.colbert is not None:
        kinds["colbert"] = _rows(vectors.colbert)
    for together in zip(*kinds.values(), strict=True):
        numbers = sum(count for _, count in together)
        if several:
            named = (b'"%b":%b' % (kind.encode(), piece) for kind, (piece, _) in zip(kinds, together, strict=True))
            yield b"{%b}" % b",".join(named), numbers
        else:
            yield together[0][0], numbers


def _dense(vectors: Vectors, *, base64: bool) -> Iterator[Piece]:
    size = 4 * vectors.dimension
    encode: Callable[[bytes], bytes] = _text if base64 else _numbers
    count = 0 if base64 else vectors.dimension
    for start in range(0, len(vectors.data), size):
        yield encode(vectors.data[start : start + size]), count


def _sparse(sparse: Sparse) -> Iterator[Piece]:
    for end, count in zip(accumulate(sparse.counts), sparse.counts, strict=True):
        part = slice(4 * (end - count), 4 * end)
        indices = msgspec.json.encode(_read("i", sparse.indices[part]))
        yield b'{"indices":%b,"values":%b}' % (indices, _numbers(sparse.values[part])), count


def _rows(rows: Rows) -> Iterator[Piece]:
    size = 4 * rows.dimension
    for end, count in zip(accumulate(rows.counts), rows.counts, strict=True):
        starts = range((end - count) * size, end * size, size)
        yield b"[%b]" % b",".join(_numbers(rows.data[start : start + size]) for start in starts), count * rows.dimension


def _text(data: bytes) -> bytes:
    return b'"%b"' % binascii.b2a_base64(data, newline=False)


def _numbers(data: bytes) -> bytes:
    return msgspec.json.encode(_read("f", data))


def _read(kind: str, data: bytes) -> list[int] | list[float]:
    numbers = array.array(kind, data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
