"""A llama.cpp context with pooling: a batch of inputs in, one row of float32 per input out, (inputs, size).

Only one thread computes; `abort` may be called from any thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from functions.engines.batching.item import Ids, Item
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model import context_params
from functions.engines.llama.model.context import ABORTED, Batch
from functions.engines.llama.model.model import Model
from functions.engines.llama.model.native_library import lib
from functions.engines.llama.model.step import Step
from functions.engines.llama.model.thread_count import ThreadCount
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.pooled.pooling import NUMBERS, ModelTraits, Pooling, read_traits
from functions.engines.llama.pooled.token_types import TokenTypes
from host.errors import ColdframeError, NotFinite, OutOfMemory, ShuttingDown

Rows = npt.NDArray[np.float32]

SEQUENCES = 64
"""Inputs of one batch at most."""
_RECURRENT_SEQUENCES = 8
"""The same where each keeps a state of its own."""
_OUT_OF_MEMORY = -2
_CELLS = 256
_SAME = 1e-3
"""Relative difference up to which two rows count as equal."""


class _EmbeddingBatch(Batch):
    """A batch of token embeddings with token types, instead of token ids."""

    def __init__(self, size: int, segments: TokenTypes) -> None:
        super().__init__(size)
        self._segments = segments
        self._vectors = np.zeros((size, segments.size), np.float32)
        self.raw.token = None
        self.raw.embd = self._vectors.ctypes.data_as(ctypes.POINTER(ctypes.c_float))

    def add_item(self, sequence: int, item: Item) -> None:
        types = np.zeros(len(item.ids), np.int32) if item.types is None else item.types
        start = self.count
        self.add(sequence, item.ids, 0, output=True)
        self._vectors[start : self.count] = self._segments.vectors(item.ids, types)


class PooledContext:
    """A context with pooling; `most` is the maximum number of inputs in a batch."""

    def __init__(
        self,
        handle: int,
        pooling: Pooling,
        size: int,
        most: int,
        flag: Any,
        threads: ThreadCount | None = None,
    ) -> None:
        self.handle = handle
        self._step = Step(handle, threads)
        self.most = most
        """Inputs of one batch."""
        self._memory = lib.llama_get_memory(handle)
        self._stepwise = pooling.stepwise
        self._size = size
        self._flag = flag
        self._room = int(lib.llama_n_batch(handle))
        self._batch = self._plain = Batch(self._room)
        self._typed: _EmbeddingBatch | None = None

    @classmethod
    def open(
        cls,
        model: Model,
        options: LlamaOptions,
        target: Target,
        *,
        known: ModelTraits,
        pooling: Pooling,
        longest: int,
        threads: int = 1,
    ) -> PooledContext:
        """Make a context for inputs of up to `longest` tokens; raises `OutOfMemory` or `LoadFailed`."""
        most = sequences(known)
        params = _parameters(options, target, most, threads)
        params.pooling_type = NUMBERS[pooling.kind]
        params.n_batch = params.n_ubatch = batch(options, pooling, longest)
        params.n_ctx = -(-max(longest, params.n_batch) // _CELLS) * _CELLS
        params.n_outputs_max = most if pooling.stepwise else params.n_batch
        flag = context_params.abortable(params)
        handle = _made(model, params)
        counted = None if options.deterministic else ThreadCount(threads)
        return cls(handle, pooling, known.labels if pooling.kind == "rank" else known.size, most, flag, counted)

    def enable_token_types(self, segments: TokenTypes) -> bool:
        """Apply token types to items from now on; returns whether a trial on one item gives the same row as without."""
        item = Item(ids=np.arange(min(8, self._room), dtype=np.int32))
        expected = self.compute([item])
        self._typed = _EmbeddingBatch(self._room, segments)
        found = self.compute([msgspec.structs.replace(item, types=np.zeros_like(item.ids))])
        if np.abs(found - expected).max() > _SAME * max(1.0, float(np.abs(expected).max())):
            self._typed = None
        return self._typed is not None

    def compute(self, inputs: Sequence[Item]) -> Rows:
        """Return a row for each of at most `most` inputs, whose tokens fit into the batch together, or one alone.

        Raises `OutOfMemory`, `ShuttingDown` once aborted, and `NotFinite`.
        """
        if self._memory:
            lib.llama_memory_clear(self._memory, False)
        typed = self._typed if any(item.types is not None for item in inputs) else None
        self._batch = typed or self._plain
        self._begin()
        if self._stepwise:
            self._step_through(inputs)
        elif typed is not None:
            for at, item in enumerate(inputs):
                typed.add_item(at, item)
            self._run()
        else:
            for at, item in enumerate(inputs):
                self._batch.add(at, item.ids, 0, output=True)
            self._run()
        return self._rows(len(inputs))

    def abort(self) -> None:
        """Abort the running computation, and every later one."""
        self._flag[0] = b"x"

    def close(self) -> None:
        """Free the memory; safe to call twice."""
        handle, self.handle = self.handle, 0
        if handle:
            lib.llama_free(handle)

    def _step_through(self, inputs: Sequence[Item]) -> None:
        """Compute what leads up to the last tokens without any output, then the last tokens of all inputs.

        An output costs as much as a layer or more where the vocabulary is large, and only the last one is needed.
        """
        lib.llama_set_embeddings(self.handle, False)
        for at, start, ids in _pieces(inputs, self._room):
            if self._batch.count + len(ids) > self._room:
                self._run()
                self._begin()
            self._batch.add(at, ids, start, output=False)
        if self._batch.count:
            self._run()
        lib.llama_set_embeddings(self.handle, True)
        self._begin()
        for at, item in enumerate(inputs):
            self._batch.add(at, item.ids[-1:], len(item.ids) - 1, output=True)
        self._run()

    def _begin(self) -> None:
        self._batch.count = 0

    def _run(self) -> None:
        self._batch.raw.n_tokens = self._batch.count
        # For a model without memory this encodes.
        code = self._step.compute(self._batch.raw)
        if code == ABORTED:
            raise ShuttingDown("the model is being unloaded")
        if code == _OUT_OF_MEMORY:
            raise OutOfMemory("memory ran out while a batch was computed")
        if code:
            raise ColdframeError(f"llama.cpp could not compute a batch (code {code})")

    def _rows(self, count: int) -> Rows:
        found = np.empty((count, self._size), np.float32)
        for at in range(count):
            numbers = lib.llama_get_embeddings_seq(self.handle, at)
            if not numbers:
                raise ColdframeError("llama.cpp gave no vector for an input")
            found[at] = np.ctypeslib.as_array(numbers, (self._size,))
        if not np.isfinite(found).all():
            raise NotFinite("the model gave numbers that are not finite")
        return found


def sequences(known: ModelTraits) -> int:
    """Return how many inputs one batch may have."""
    return _RECURRENT_SEQUENCES if known.recurrent else SEQUENCES


def batch(options: LlamaOptions, pooling: Pooling, longest: int) -> int:
    """Return the tokens of a batch; an input that cannot be computed in pieces must fit into one."""
    return options.batch if pooling.stepwise else max(options.batch, longest)


def outputs(options: LlamaOptions, known: ModelTraits, pooling: Pooling, longest: int) -> int:
    """Return the bytes of llama.cpp's output buffer, which has logits of the whole vocabulary for each output token.

    Includes the batch of embeddings of models with token types.
    """
    rows = sequences(known) if pooling.stepwise else batch(options, pooling, longest)
    vectors = 2 * known.size if uses_token_types(known, pooling) else 0
    return rows * (known.vocabulary_size + known.size + vectors) * 4


def uses_token_types(known: ModelTraits, pooling: Pooling) -> bool:
    """Return whether inputs may be pairs with token types."""
    return known.typed and pooling.kind == "rank"


def inspect_model(model: Model, options: LlamaOptions, target: Target) -> ModelTraits:
    """Return the traits of a model, read from a minimal context on it; raises `LoadFailed`."""
    params = _parameters(options, target, 1, 1)
    params.pooling_type = lib.LLAMA_POOLING_TYPE_UNSPECIFIED
    params.n_ctx = params.n_batch = params.n_ubatch = min(_CELLS, model.trained)
    handle = _made(model, params)
    try:
        declared = int(lib.llama_pooling_type(handle))
        return read_traits(model, encoder=not lib.llama_get_memory(handle), declared=declared)
    finally:
        lib.llama_free(handle)


def _parameters(options: LlamaOptions, target: Target, most: int, threads: int) -> Any:
    params = context_params.parameters(options, target, threads)
    params.embeddings = True
    params.n_seq_max = most
    params.kv_unified = True
    return params


def _made(model: Model, params: Any) -> int:
    return context_params.opened(model, params, f"a batch of {params.n_batch} tokens")


def _pieces(inputs: Sequence[Item], size: int) -> Iterator[tuple[int, int, Ids]]:
    """Yield (input, first position, ids) of all but the last tokens, in pieces of at most `size`."""
    for at, item in enumerate(inputs):
        for start in range(0, len(item.ids) - 1, size):
            yield at, start, item.ids[start : min(start + size, len(item.ids) - 1)]
