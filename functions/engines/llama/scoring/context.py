"""A llama.cpp context for scoring: one KV cache for all sequences, and batches whose tokens several sequences share.

Only the thread that owns the context may use it; `abort` may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model import context_params
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.model.native_library import lib
from functions.engines.llama.model.thread_count import ThreadCount
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.scoring.shared_batch import SharedBatch

SEQUENCES = 64
"""llama.cpp makes room for logits of as many tokens as there are sequences, so that more would cost memory."""
_CELLS = 256


class ScoringContext(Context):
    """A context with shared batches, of which at most `SEQUENCES` tokens have logits."""

    def __init__(
        self, handle: int, batch_size: int, vocabulary_size: int, abort_flag: Any, threads: ThreadCount | None = None
    ) -> None:
        super().__init__(handle, batch_size, vocabulary_size, abort_flag, threads)
        self.batch = SharedBatch(batch_size, SEQUENCES)
        self.cells = int(lib.llama_n_ctx(handle))

    @classmethod
    def make(
        cls, model: Model, options: LlamaOptions, target: Target, *, cells: int, threads: int = 1
    ) -> ScoringContext:
        """Make a context of so many cells; raises `OutOfMemory` or `LoadFailed`."""
        params = context_params.parameters(options, target, threads)
        params.n_ctx = -(-cells // _CELLS) * _CELLS
        params.n_outputs_max = SEQUENCES
        params.n_seq_max = 1 if single_sequence(model, options) else SEQUENCES  # each would keep a state
        params.kv_unified = True
        # Layers that look at a window only must keep all of the prefix as well: it is cut and shared.
        params.swa_full = True
        size = max(options.batch, SEQUENCES)
        params.n_batch, params.n_ubatch = size, min(max(options.ubatch, SEQUENCES), size)
        flag = context_params.abortable(params)
        handle = context_params.opened(model, params, f"a cache of {cells} tokens")
        counted = None if options.deterministic else ThreadCount(threads)
        return cls(handle, size, model.vocabulary.size, flag, counted)

    def begin_shared(self, line: Sequence[int]) -> None:
        """Empty the batch; `line` are the sequences that its tokens belong to."""
        self.batch.count = 0
        self.batch.line(line)

    def compute_shared(self) -> int:
        """Compute the batch and empty it; see `Context.compute`."""
        self.batch.raw.n_tokens, self.batch.count = self.batch.count, 0
        return self._step.compute(self.batch.raw)


def single_sequence(model: Model, options: LlamaOptions) -> bool:
    """Return whether each sequence is computed in full and by itself.

    A recurrent state (Mamba) can neither be cut nor shared in part. For determinism, KV cells must not be shared: the
    position of a token among the cells decides the order of sums in attention.
    """
    return model.recurrent or options.deterministic
