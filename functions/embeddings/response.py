"""Renders vectors as OpenAI's JSON: lists of numbers, or base64 of little-endian float32."""

from __future__ import annotations

import array
import asyncio
import binascii
import sys
from collections.abc import Callable, Iterator
from itertools import accumulate

import msgspec

from functions.embeddings.api import SparseVectors, TokenVectors, Vectors

_YIELD_EVERY = 32_768
"""Numbers written before the event loop runs other work: about 4 ms."""

Rendered = tuple[bytes, int]
"""JSON, and how many numbers are in it."""


async def render(vectors: Vectors, *, model: str, base64: bool, as_object: bool = False) -> bytes:
    """Return the body of the response; `model` is the name that the client used.

    With `as_object` each embedding is an object with a key for each type; else there is a single type.
    """
    pieces: list[bytes] = []
    written = 0
    for index, (embedding, numbers) in enumerate(_embeddings(vectors, base64=base64, as_object=as_object)):
        pieces.append(b'{"object":"embedding","index":%d,"embedding":%b}' % (index, embedding))
        written += numbers
        if written >= _YIELD_EVERY:
            written = 0
            await asyncio.sleep(0)
    tokens = vectors.usage.prompt_tokens
    usage = b'"usage":{"prompt_tokens":%d,"total_tokens":%d}' % (tokens, tokens)
    name = msgspec.json.encode(model)
    return b'{"object":"list","model":%b,%b,"data":[%b]}' % (name, usage, b",".join(pieces))


def _embeddings(vectors: Vectors, *, base64: bool, as_object: bool) -> Iterator[Rendered]:
    types: dict[str, Iterator[Rendered]] = {}
    if vectors.dimension:
        types["dense"] = _dense(vectors, base64=base64)
    if vectors.sparse is not None:
        types["sparse"] = _sparse(vectors.sparse)
    if vectors.colbert is not None:
        types["colbert"] = _token_vectors(vectors.colbert)
    for parts in zip(*types.values(), strict=True):
        numbers = sum(count for _, count in parts)
        if as_object:
            named = (b'"%b":%b' % (type_.encode(), piece) for type_, (piece, _) in zip(types, parts, strict=True))
            yield b"{%b}" % b",".join(named), numbers
        else:
            yield parts[0][0], numbers


def _dense(vectors: Vectors, *, base64: bool) -> Iterator[Rendered]:
    size = 4 * vectors.dimension
    encode: Callable[[bytes], bytes] = _base64 if base64 else _numbers
    count = 0 if base64 else vectors.dimension
    for start in range(0, len(vectors.data), size):
        yield encode(vectors.data[start : start + size]), count


def _sparse(sparse: SparseVectors) -> Iterator[Rendered]:
    for end, count in zip(accumulate(sparse.counts), sparse.counts, strict=True):
        part = slice(4 * (end - count), 4 * end)
        indices = msgspec.json.encode(_read("i", sparse.indices[part]))
        yield b'{"indices":%b,"values":%b}' % (indices, _numbers(sparse.values[part])), count


def _token_vectors(rows: TokenVectors) -> Iterator[Rendered]:
    size = 4 * rows.dimension
    for end, count in zip(accumulate(rows.counts), rows.counts, strict=True):
        starts = range((end - count) * size, end * size, size)
        yield b"[%b]" % b",".join(_numbers(rows.data[start : start + size]) for start in starts), count * rows.dimension


def _base64(data: bytes) -> bytes:
    return b'"%b"' % binascii.b2a_base64(data, newline=False)


def _numbers(data: bytes) -> bytes:
    return msgspec.json.encode(_read("f", data))


def _read(typecode: str, data: bytes) -> list[int] | list[float]:
    numbers = array.array(typecode, data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
