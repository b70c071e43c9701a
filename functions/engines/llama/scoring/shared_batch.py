"""A llama.cpp batch in which a token may belong to several adjacent sequences of an ordered list."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from functions.engines.llama.model.native_library import lib


class SharedBatch:
    """A batch filled token by token; `line`, the ordered list of sequences, is set before tokens are added."""

    def __init__(self, size: int, sequences: int) -> None:
        self.count = 0
        self.size = size
        self._tokens = np.zeros(size, np.int32)
        self._positions = np.zeros(size, np.int32)
        self._outputs = np.zeros(size, np.int8)
        self._counts = np.zeros(size, np.int32)
        self._line = np.zeros(sequences, np.int32)
        self._pointers = np.zeros(size, np.uintp)
        self.raw = lib.llama_batch(
            n_tokens=0,
            token=self._tokens.ctypes.data_as(ctypes.POINTER(lib.llama_token)),
            embd=None,
            pos=self._positions.ctypes.data_as(ctypes.POINTER(lib.llama_pos)),
            n_seq_id=self._counts.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            seq_id=ctypes.cast(self._pointers.ctypes.data, ctypes.POINTER(ctypes.POINTER(lib.llama_seq_id))),
            logits=self._outputs.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def line(self, sequences: Sequence[int]) -> None:
        """Set the ordered list of sequences."""
        self._line[: len(sequences)] = sequences

    def add(self, tokens: Sequence[int], position: int, low: int, high: int, *, output: bool = False) -> int:
        """Append tokens, the first at `position`, to the sequences at the indices `low` up to `high` of `line`.

        Returns the last one's index in the batch; `output` says whether it is to have logits.
        """
        start, end = self.count, self.count + len(tokens)
        self._tokens[start:end] = tokens
        self._positions[start:end] = np.arange(position, position + len(tokens), dtype=np.int32)
        self._counts[start:end] = high - low
        self._pointers[start:end] = self._line.ctypes.data + low * self._line.itemsize
        self._outputs[start:end] = 0
        self._outputs[end - 1] = output
        self.count = end
        return end - 1
