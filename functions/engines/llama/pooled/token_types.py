"""TokenTypes, which tell the two texts of a pair apart: llama.cpp adds that of a first text to every token.

Tokens of a second text are given to it as the vectors that it would look up for them, with the difference between the
two segments added: then its sum is right. It knows the file's tables, and nothing of batches or texts.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from functions.engines.batching.item import Ids
from functions.engines.llama.model import gguf
from functions.engines.llama.model.library import ggml
from host.errors import LoadFailed

Vectors = npt.NDArray[np.float32]

_PLAIN = {0: "<f4", 1: "<f2"}
"""ggml's types that are numbers as they stand."""
_TOKEN_EMBEDDINGS, _TYPE_EMBEDDINGS = "token_embd.weight", "token_types.weight"
_LEAST = 2
"""TokenTypes that tell two texts apart."""


class _Parameters(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p)]


_ToFloat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class _Traits(ctypes.Structure):
    """What ggml knows of a type of tensor."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("block", ctypes.c_int64),
        ("interleave", ctypes.c_int64),
        ("size", ctypes.c_size_t),
        ("quantized", ctypes.c_bool),
        ("to_float", _ToFloat),
    ]


for _name, _result, _arguments in (
    ("gguf_init_from_file", ctypes.c_void_p, (ctypes.c_char_p, _Parameters)),
    ("gguf_free", None, (ctypes.c_void_p,)),
    ("gguf_get_data_offset", ctypes.c_size_t, (ctypes.c_void_p,)),
    ("gguf_find_tensor", ctypes.c_int64, (ctypes.c_void_p, ctypes.c_char_p)),
    ("gguf_get_tensor_offset", ctypes.c_size_t, (ctypes.c_void_p, ctypes.c_int64)),
    ("gguf_get_tensor_size", ctypes.c_size_t, (ctypes.c_void_p, ctypes.c_int64)),
    ("gguf_get_tensor_type", ctypes.c_int, (ctypes.c_void_p, ctypes.c_int64)),
    ("ggml_get_type_traits", ctypes.POINTER(_Traits), (ctypes.c_int,)),
):
    _function = getattr(ggml, _name)
    _function.restype, _function.argtypes = _result, _arguments


class TensorTable:
    """A matrix of a file, of which rows are read as they are asked for. `size` is the numbers of a row."""

    def __init__(self, path: Path, start: int, length: int, kind: int, size: int) -> None:
        self.size = size
        self._kind = kind
        traits = ggml.ggml_get_type_traits(kind).contents
        self._to_float = traits.to_float
        row = size // traits.block * traits.size
        self._raw = np.memmap(path, np.uint8, "r", start, (length // row, row))

    def __len__(self) -> int:
        return len(self._raw)

    def rows(self, places: Ids) -> Vectors:
        """Return the rows at some places, (places, size)."""
        raw = np.ascontiguousarray(self._raw[places])
        if self._kind in _PLAIN:
            plain: Vectors = raw.view(_PLAIN[self._kind]).astype(np.float32)
            return plain
        found = np.empty((len(places), self.size), np.float32)
        self._to_float(raw.ctypes.data, found.ctypes.data, found.size)
        return found


class TokenTypes:
    """The vectors of tokens in a segment."""

    def __init__(self, tokens: TensorTable, types: TensorTable) -> None:
        self.size = tokens.size
        self._tokens = tokens
        table = types.rows(np.arange(len(types), dtype=np.int32))
        self._differences: Vectors = table - table[0]

    @classmethod
    def read(cls, path: Path, size: int) -> TokenTypes | None:
        """Open a model of two segments or more, whose vectors have `size` numbers, in one file or in several.

        None for one without a table of segments: nothing is added to its tokens. Raises `LoadFailed` where the tables
        cannot be read or do not belong together.
        """
        tables: dict[str, TensorTable] = {}
        for file in gguf.shards(path):
            tables |= _tables(file, size)
        segments = tables.get(_TYPE_EMBEDDINGS)
        if segments is None:
            return None
        if _TOKEN_EMBEDDINGS not in tables:
            raise LoadFailed(
                f"{path.name} has {_TYPE_EMBEDDINGS} and no {_TOKEN_EMBEDDINGS}: tokens of a second text cannot be computed"
            )
        if len(segments) < _LEAST:
            raise LoadFailed(
                f"{path.name} says that it knows several segments, and {_TYPE_EMBEDDINGS} has {len(segments)}"
            )
        return cls(tables[_TOKEN_EMBEDDINGS], segments)

    def vectors(self, ids: Ids, types: Ids) -> Vectors:
        """Return what stands for tokens of the given segments, (tokens, size)."""
        found = self._tokens.rows(ids)
        found += self._differences[types]
        return found


def has_token_types(path: Path) -> bool:
    """Say whether a model, in one file or in several, has a table of segments."""
    return _TYPE_EMBEDDINGS in gguf.read(path).tensors


def _tables(path: Path, size: int) -> dict[str, TensorTable]:
    """Return those of the two tables that one file of a model has, by name."""
    context = ggml.gguf_init_from_file(os.fsencode(path), _Parameters(no_alloc=True, context=None))
    if not context:
        raise LoadFailed(f"the head of {path.name} cannot be read to find the vectors of its segments")
    try:
        start = ggml.gguf_get_data_offset(context)
        places = {name: ggml.gguf_find_tensor(context, name.encode()) for name in (_TOKEN_EMBEDDINGS, _TYPE_EMBEDDINGS)}
        return {
            name: TensorTable(
                path,
                start + ggml.gguf_get_tensor_offset(context, at),
                ggml.gguf_get_tensor_size(context, at),
                ggml.gguf_get_tensor_type(context, at),
                size,
            )
            for name, at in places.items()
            if at >= 0
        }
    finally:
        ggml.gguf_free(context)
