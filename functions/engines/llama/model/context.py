"""A llama.cpp context for generation: the batch that is filled and computed, and the KV cache of its sequences.

Only the thread that owns a context may use it; `abort` may be called from any thread.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model import context_params
from functions.engines.llama.model.adapters import Adapters
from functions.engines.llama.model.model import Model
from functions.engines.llama.model.native_library import lib, quick
from functions.engines.llama.model.step import COMPUTED, Step
from functions.engines.llama.model.thread_count import ThreadCount
from functions.engines.llama.options import LlamaOptions, drafts
from host.errors import LoadFailed

_MOST_CELLS = (1 << 31) - 256
_ROWS = 1024
_CELLS = 256
"""llama.cpp rounds the cache up to a multiple of this."""

NO_ROOM, ABORTED = 1, 2

__all__ = ("ABORTED", "COMPUTED", "NO_ROOM", "Batch", "Context")


class Context:
    """A context with its batch and KV cache."""

    def __init__(
        self, handle: int, batch_size: int, vocabulary_size: int, abort_flag: Any, threads: ThreadCount | None = None
    ) -> None:
        self.handle = handle
        self._step = Step(handle, threads)
        self._row = ctypes.c_float * vocabulary_size
        self._rows: dict[int | None, NDArray[np.float32]] = {}
        self._memory = lib.llama_get_memory(handle)
        self._abort_flag = abort_flag
        self._batch = Batch(batch_size)
        self.size = batch_size
        self.adapters: Adapters | None = None
        """The adapters that `set_adapter` chooses from."""
        self._adapter: str | None = None

    @classmethod
    def open(
        cls, model: Model, options: LlamaOptions, target: Target, *, context: int, slots: int, threads: int = 1
    ) -> Context:
        """Make a context for `slots` sequences of `context` tokens; raises `OutOfMemory` or `LoadFailed`.

        All of them share one pool of cells, or each has a pool of its own where the options ask for determinism: where
        in a pool a token lies decides in which order attention adds up.
        """
        if context * slots > _MOST_CELLS:
            raise LoadFailed(f"{slots} x {context} tokens are more than the {_MOST_CELLS} that llama.cpp can count")
        params = context_params.parameters(options, target, threads)
        size = max(options.batch, slots)
        params.n_ctx = context * slots
        params.n_seq_max = slots
        params.kv_unified = not options.deterministic
        params.n_batch = size
        params.n_ubatch = min(max(options.ubatch, slots), size)
        params.n_outputs_max = min(size, slots * (1 + drafts(options)))
        params.swa_full = options.sliding_window_full
        flag = context_params.abortable(params)
        handle = context_params.opened(model, params, f"a cache of {slots} x {context} tokens")
        counted = None if options.deterministic else ThreadCount(threads)
        opened = cls(handle, size, model.vocabulary.size, flag, counted)
        if not opened._memory:
            opened.close()
            raise LoadFailed("this model cannot generate text: it is an encoder")
        return opened

    def set_adapter(self, adapter: str | None) -> None:
        """Use this adapter, or none, for the next batches; a change costs llama.cpp a new graph."""
        if adapter != self._adapter:
            assert self.adapters is not None
            self.adapters.use(self.handle, adapter)
            self._adapter = adapter

    def begin(self) -> None:
        """Empty the batch."""
        self._batch.count = 0

    def add(self, sequence: int, tokens: list[int], position: int, *, output: int) -> int:
        """Append tokens of one sequence, the first at `position`; the last `output` of them are to have logits.

        Returns the index in the batch of the last one.
        """
        return self._batch.add(sequence, tokens, position, output)

    def add_each(self, sequences: list[int], tokens: list[int], positions: list[int]) -> None:
        """Append one token of each sequence, all to have logits."""
        self._batch.add_each(sequences, tokens, positions)

    def compute(self) -> int:
        """Compute the batch: COMPUTED, NO_ROOM (nothing happened), ABORTED or below 0 (some of it may have)."""
        self._batch.raw.n_tokens = self._batch.count
        return self._step.compute(self._batch.raw)

    def logits(self, index: int) -> NDArray[np.float32]:
        """Return the logits, one per id, at `index` of the batch computed last; writable, valid until the next."""
        address = quick.llama_get_logits_ith(self.handle, index)
        row = self._rows.get(address)
        return self._view(address, index) if row is None else row

    def _view(self, address: int | None, index: int) -> NDArray[np.float32]:
        """Return an array over the logits at an address, and keep it for the next step: there are few addresses."""
        if not address:
            raise RuntimeError(f"llama.cpp has no logits for the batch's token {index}")
        row: NDArray[np.float32] = np.frombuffer(self._row.from_address(address), np.float32)  # type: ignore[call-overload]
        if len(self._rows) > _ROWS:
            self._rows.clear()
        self._rows[address] = row
        return row

    def abort(self, on: bool) -> None:
        """Abort the running computation, from any thread; `abort(False)` before every `compute`."""
        self._abort_flag[0] = b"x" if on else b"\0"

    def length(self, sequence: int) -> int:
        """Return the length of the sequence: its highest position in the KV cache plus 1."""
        return int(quick.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def first(self, sequence: int) -> int:
        """Return the lowest position in the KV cache; above 0 once a sliding window has moved on."""
        return int(quick.llama_memory_seq_pos_min(self._memory, sequence))

    def cut(self, sequence: int, length: int) -> bool:
        """Remove all but the first `length` tokens; returns False, unchanged, if it cannot be cut."""
        return bool(quick.llama_memory_seq_rm(self._memory, sequence, length, -1))

    def forget(self, sequence: int) -> None:
        """Remove a sequence from the KV cache."""
        quick.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def wipe(self) -> None:
        """Clear the KV cache and its data: NaNs persist in reused cells."""
        lib.llama_memory_clear(self._memory, True)

    def copy(self, source: int, target: int, length: int, start: int = 0) -> None:
        """Let `target`, which has `start` tokens, share the tokens of `source` from there up to `length`."""
        quick.llama_memory_seq_cp(self._memory, source, target, start, length)

    def save(self, sequence: int) -> NDArray[np.uint8] | None:
        """Return a copy of the state of a sequence, None if it is empty or cannot be saved."""
        size = int(lib.llama_state_seq_get_size(self.handle, sequence))
        state = np.empty(size, np.uint8)
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        written = int(lib.llama_state_seq_get_data(self.handle, pointer, size, sequence))
        return state if 0 < written == size else None

    def restore(self, sequence: int, state: NDArray[np.uint8]) -> bool:
        """Restore a state into an empty sequence; returns False, leaving it empty, if it does not fit."""
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        if lib.llama_state_seq_set_data(self.handle, pointer, len(state), sequence):
            return True
        self.forget(sequence)
        return False

    def close(self) -> None:
        """Free the memory; safe to call twice."""
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

    def add(self, sequence: int, tokens: list[int] | NDArray[np.int32], position: int, output: int) -> int:
        """See `Context.add`."""
        start, end = self.count, self.count + len(tokens)
        self._tokens[start:end] = tokens
        self._positions[start:end] = np.arange(position, position + len(tokens), dtype=np.int32)
        self._sequences[start:end] = sequence
        self._outputs[start:end] = 0
        self._outputs[end - output : end] = 1
        self.count = end
        return end - 1

    def add_each(self, sequences: list[int], tokens: list[int], positions: list[int]) -> None:
        """See `Context.add_each`."""
        start, end = self.count, self.count + len(tokens)
        self._tokens[start:end] = tokens
        self._positions[start:end] = positions
        self._sequences[start:end] = sequences
        self._outputs[start:end] = 1
        self.count = end
