"""Token type embeddings for pairs of texts, which llama.cpp does not support: it adds type 0 to every token.

Tokens of a second text are passed as embeddings instead of ids: their token embedding plus the difference between the
embeddings of their type and of type 0. Both tables are read from the GGUF file, dequantized to float32.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from functions.engines.batching.item import Ids
from functions.engines.llama.model import gguf
from functions.engines.llama.model.native_library import ggml
from host.errors import LoadFailed

Vectors = npt.NDArray[np.float32]

_PLAIN = {0: "<f4", 1: "<f2"}
"""ggml types that are not quantized, as NumPy types."""
_TOKEN_EMBEDDINGS, _TYPE_EMBEDDINGS = "token_embd.weight", "token_types.weight"
_LEAST = 2
"""Types needed for pairs of texts."""


class _Parameters(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p)]


_ToFloat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class _Traits(ctypes.Structure):
    """ggml's `ggml_type_traits`."""

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
    """A matrix in a GGUF file, whose rows of `size` numbers are read and dequantized on demand."""

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
        """Return the rows at the given indices, (indices, size)."""
        raw = np.ascontiguousarray(self._raw[places])
        if self._kind in _PLAIN:
            plain: Vectors = raw.view(_PLAIN[self._kind]).astype(np.float32)
            return plain
        found = np.empty((len(places), self.size), np.float32)
        self._to_float(raw.ctypes.data, found.ctypes.data, found.size)
        return found


class TokenTypes:
    """Embeddings of tokens by token type."""

    def __init__(self, tokens: TensorTable, types: TensorTable) -> None:
        self.size = tokens.size
        self._tokens = tokens
        table = types.rows(np.arange(len(types), dtype=np.int32))
        self._differences: Vectors = table - table[0]

    @classmethod
    def read(cls, path: Path, size: int) -> TokenTypes | None:
        """Read the tables of a model with embeddings of `size` numbers, in one file or several.

        None for a model without token type embeddings. Raises `LoadFailed` if the tables cannot be read or do not
        match.
        """
        tables: dict[str, TensorTable] = {}
        for file in gguf.shards(path):
            tables |= _tables(file, size)
        segments = tables.get(_TYPE_EMBEDDINGS)
        if segments is None:
            return None
        if _TOKEN_EMBEDDINGS not in tables:
            raise LoadFailed(
                f"{path.name} has {_TYPE_EMBEDDINGS} but not {_TOKEN_EMBEDDINGS}, which the second text of a pair needs"
            )
        if len(segments) < _LEAST:
            raise LoadFailed(f"{path.name} declares several token types, but {_TYPE_EMBEDDINGS} has {len(segments)}")
        return cls(tables[_TOKEN_EMBEDDINGS], segments)

    def vectors(self, ids: Ids, types: Ids) -> Vectors:
        """Return the embeddings of tokens with the given types, (tokens, size)."""
        found = self._tokens.rows(ids)
        found += self._differences[types]
        return found


def has_token_types(path: Path) -> bool:
    """Return whether a model, in one file or several, has token type embeddings."""
    return _TYPE_EMBEDDINGS in gguf.read(path).tensors


def _tables(path: Path, size: int) -> dict[str, TensorTable]:
    """Return the tables that are in this file of the model, by name."""
    context = ggml.gguf_init_from_file(os.fsencode(path), _Parameters(no_alloc=True, context=None))
    if not context:
        raise LoadFailed(f"the header of {path.name} cannot be read to find its token type embeddings")
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
