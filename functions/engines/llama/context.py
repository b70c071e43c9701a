"""A llama.cpp context: one batch that is filled and computed, and the memory of what sequences have been computed.

It knows tokens, positions and sequence ids, and nothing of requests. One thread owns it; only `abort` is for others.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from functions.engines.llama import log
from functions.engines.llama.devices import Target
from functions.engines.llama.library import lib
from functions.engines.llama.model import Model
from functions.engines.llama.options import LlamaOptions
from host.errors import LoadFailed, OutOfMemory

_TYPES = {
    name: getattr(lib, f"GGML_TYPE_{name.upper()}") for name in ("f32", "f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
} | {"bf16": 30}
_FLASH = {
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
_CELLS = 256
"""llama.cpp rounds the cache up to a multiple of this."""

COMPUTED, NO_ROOM, ABORTED = 0, 1, 2

# llama.cpp asks an abort callback before every node of a graph. A Python function there would wait for the interpreter
# lock a thousand times a step; `strlen` of a two-byte buffer is false for "" and true for "x", and needs no lock.
_strlen = ctypes.cast(ctypes.CDLL(None).strlen, lib.ggml_abort_callback)


class Context:
    """The state that batches are computed on."""

    def __init__(self, handle: int, batch_size: int, abort_flag: Any) -> None:
        self.handle = handle
        self._memory = lib.llama_get_memory(handle)
        self._abort_flag = abort_flag
        self._batch = Batch(batch_size)
        self.size = batch_size

    @classmethod
    def open(
        cls, model: Model, options: LlamaOptions, target: Target, *, context: int, slots: int, threads: int = 1
    ) -> Context:
        """Make a context for `slots` sequences of `context` tokens; raises `OutOfMemory` or `LoadFailed`."""
        params = lib.llama_context_default_params()
        flag = ctypes.create_string_buffer(2)
        size = max(options.batch, slots)
        params.n_ctx = context * slots
        params.n_seq_max = slots
        params.kv_unified = True
        params.n_batch = size
        params.n_ubatch = min(max(options.ubatch, slots), size)
        params.n_outputs_max = slots
        params.n_threads = params.n_threads_batch = threads
        params.type_k, params.type_v = _TYPES[options.cache_type_k], _TYPES[options.cache_type_v]
        params.flash_attn_type = _FLASH[options.flash_attention]
        params.swa_full = options.sliding_window_full
        params.offload_kqv = params.op_offload = target.device is not None
        params.abort_callback = _strlen
        params.abort_callback_data = ctypes.cast(flag, ctypes.c_void_p)
        with log.listen() as heard:
            handle = lib.llama_init_from_model(model.handle, params)
        if not handle:
            said = log.reason(heard, "")
            if log.ran_out_of_memory(heard):
                raise OutOfMemory(f"a cache of {slots} x {context} tokens does not fit into memory: {said}")
            raise LoadFailed(f"llama.cpp makes no context for this model: {said or 'it gave no reason'}")
        opened = cls(handle, size, flag)
        if not opened._memory:
            opened.close()
            raise LoadFailed("this model cannot generate text: it is an encoder")
        return opened

    def begin(self) -> None:
        """Empty the batch."""
        self._batch.count = 0

    def add(self, sequence: int, tokens: list[int], position: int, *, output: bool) -> int:
        """Append tokens of one sequence, the first at `position`; `output` asks for the logits of the last one.

        Returns the last one's index in the batch, which samplers take.
        """
        return self._batch.add(sequence, tokens, position, output)

    def compute(self) -> int:
        """Compute the batch: COMPUTED, NO_ROOM (nothing happened), ABORTED or below 0 (some of it may have)."""
        self._batch.raw.n_tokens = self._batch.count
        return int(lib.llama_decode(self.handle, self._batch.raw))

    def abort(self, on: bool) -> None:
        """Let the computation that is running, on another thread, stop soon; `off` before every `compute`."""
        self._abort_flag[0] = b"x" if on else b"\0"

    def length(self, sequence: int) -> int:
        """Return how many positions of the sequence are in memory, counted from 0."""
        return int(lib.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def first(self, sequence: int) -> int:
        """Return the lowest position still in memory; above 0 when a sliding window has passed on."""
        return int(lib.llama_memory_seq_pos_min(self._memory, sequence))

    def cut(self, sequence: int, length: int) -> bool:
        """Forget what lies behind the first `length` tokens; False, with nothing changed, where memory cannot."""
        return bool(lib.llama_memory_seq_rm(self._memory, sequence, length, -1))

    def forget(self, sequence: int) -> None:
        """Forget all of a sequence."""
        lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def copy(self, source: int, target: int, length: int) -> None:
        """Let the empty `target` share the first `length` tokens of `source`."""
        lib.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def close(self) -> None:
        """Free it; safe to call twice."""
        handle, self.handle = self.handle, 0
        if handle:
            lib.llama_free(handle)


class Batch:
    """llama.cpp's batch over arrays that are filled by slices instead of one ctypes store per number."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self._tokens = np.zeros(size, dtype=np.int32)
        self._positions = np.zeros(size, dtype=np.int32)
        self._sequences = np.zeros(size, dtype=np.int32)
        self._outputs = np.zeros(size, dtype=np.int8)
        self._ones = np.ones(size, dtype=np.int32)
        step = self._sequences.itemsize
        self._pointers = np.arange(size, dtype=np.uintp) * step + self._sequences.ctypes.data
        self.raw = lib.llama_batch(
            n_tokens=0,
            token=self._tokens.ctypes.data_as(ctypes.POINTER(lib.llama_token)),
            embd=None,
            pos=self._positions.ctypes.data_as(ctypes.POINTER(lib.llama_pos)),
            n_seq_id=self._ones.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            seq_id=ctypes.cast(self._pointers.ctypes.data, ctypes.POINTER(ctypes.POINTER(lib.llama_seq_id))),
            logits=self._outputs.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def add(self, sequence: int, tokens: list[int], position: int, output: bool) -> int:
        """See `Context.add`."""
        start, end = self.count, self.count + len(tokens)
        self._tokens[start:end] = tokens
        self._positions[start:end] = np.arange(position, position + len(tokens), dtype=np.int32)
        self._sequences[start:end] = sequence
        self._outputs[start:end] = 0
        self._outputs[end - 1] = output
        self.count = end
        return end - 1
