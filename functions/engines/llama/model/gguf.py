"""Reads the header of GGUF files without llama.cpp: text metadata, and the bytes of every tensor.

Sizes and counts in a file are checked against its length; `GgufError` for files that are broken or no GGUF.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from functions.engines.llama.model.native_library import ggml, lib

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of the values of metadata that have a fixed length, by type."""
_STRING, _ARRAY = 8, 9
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_MOST_DIMENSIONS = 4

ggml.ggml_type_size.argtypes = [ctypes.c_int]
ggml.ggml_type_size.restype = ctypes.c_size_t
ggml.ggml_blck_size.argtypes = [ctypes.c_int]
ggml.ggml_blck_size.restype = ctypes.c_int64
# Types that were removed from ggml have blocks of nothing. It must not be asked about more than it counts.
_BLOCKS = {
    kind: (ggml.ggml_blck_size(kind), ggml.ggml_type_size(kind))
    for kind in range(lib.GGML_TYPE_COUNT)
    if ggml.ggml_blck_size(kind)
}
"""Numbers in a block, and its bytes, by type of tensor."""


class GgufError(Exception):
    """The file is not a GGUF file, or a broken one."""


class GgufHeader(msgspec.Struct, kw_only=True, frozen=True):
    """Text metadata and tensor sizes of a file."""

    texts: dict[str, str]
    """Metadata that is text: `general.architecture`, `general.type`, …"""
    tensors: dict[str, int]
    """Bytes by name, over all files of a split model."""


def read(path: Path) -> GgufHeader:
    """Read the header of a file, or of all files of a split model; raises `GgufError` or `OSError`."""
    texts: dict[str, str] = {}
    tensors: dict[str, int] = {}
    for file in shards(path):
        if not file.stat().st_size:
            raise GgufError("it is empty")
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            reader = _Reader(data)
            try:
                texts = dict(reader.metadata()) | texts
                tensors.update(reader.tensors())
            except (struct.error, UnicodeDecodeError) as error:
                raise GgufError(f"its header is broken: {error}") from None
    return GgufHeader(texts=texts, tensors=tensors)


def shards(path: Path) -> list[Path]:
    """Return all files of a model of which `path` is the first, or the only one."""
    match = _SHARD.search(path.name)
    if match is None:
        return [path]
    stem, count = path.name[: match.start()], int(match[2])
    return [path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 4
        if data[:4] != b"GGUF":
            raise GgufError("it is not a GGUF file")
        try:
            self._version, self._tensors, self._entries = self._numbers("<IQQ")
        except struct.error:
            raise GgufError("it ends within its header") from None
        if not 2 <= self._version <= 3:
            raise GgufError(f"its version is {self._version}: this reads 2 and 3")
        if max(self._tensors, self._entries) > len(data):
            raise GgufError("it counts more tensors or metadata than it has bytes")

    def metadata(self) -> Iterator[tuple[str, str]]:
        for _ in range(self._entries):
            key = self._text()
            (kind,) = self._numbers("<I")
            if kind == _STRING:
                yield key, self._text()
            else:
                self._skip(kind)

    def tensors(self) -> Iterator[tuple[str, int]]:
        for _ in range(self._tensors):
            name = self._text()
            (dimensions,) = self._numbers("<I")
            if not 1 <= dimensions <= _MOST_DIMENSIONS:
                raise GgufError(f"a tensor has {dimensions} dimensions")
            *shape, kind, _ = self._numbers(f"<{dimensions}QIQ")
            if kind not in _BLOCKS:
                raise GgufError(f"a tensor is of the unknown type {kind}")
            numbers, size = _BLOCKS[kind]
            yield name, math.prod(shape) // numbers * size

    def _skip(self, kind: int, depth: int = 0) -> None:
        if kind in _SIZES:
            self._move(_SIZES[kind])
        elif kind == _STRING:
            self._move(*self._numbers("<Q"))
        elif kind == _ARRAY and depth < _MOST_DIMENSIONS:
            of, count = self._numbers("<IQ")
            if of in _SIZES:
                self._move(_SIZES[of] * count)
                return
            if count > len(self._data):
                raise GgufError("an array is longer than the file")
            for _ in range(count):
                self._skip(of, depth + 1)
        else:
            raise GgufError(f"metadata is of the unknown type {kind}")

    def _numbers(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def _text(self) -> str:
        (length,) = self._numbers("<Q")
        start = self._at
        self._move(length)
        return self._data[start : self._at].decode()

    def _move(self, count: int) -> None:
        if count > len(self._data) - self._at:
            raise GgufError("it ends within its header")
        self._at += count
