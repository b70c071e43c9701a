"""A llama.cpp context for scoring: one pool of cells for all sequences, and batches whose tokens several may share.

It knows tokens, positions and sequences, and nothing of trees. One thread owns it; only `abort` is for others.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from functions.engines.llama import log
from functions.engines.llama.context import ABORT_CALLBACK, CACHE_TYPES, COMPUTED, FLASH, Context
from functions.engines.llama.devices import Target
from functions.engines.llama.library import lib
from functions.engines.llama.model import Model
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.scoring.batch import SharedBatch
from host.errors import LoadFailed, OutOfMemory

SEQUENCES = 64
"""llama.cpp makes room for logits of as many tokens as there are sequences, so that more would cost memory."""
_CELLS = 256


class ScoringContext(Context):
    """The state that batches are computed on; of one batch, at most `SEQUENCES` tokens have logits."""

    def __init__(self, handle: int, batch_size: int, vocabulary_size: int, abort_flag: Any) -> None:
        super().__init__(handle, batch_size, vocabulary_size, abort_flag)
        self.batch = SharedBatch(batch_size, SEQUENCES)
        self.cells = int(lib.llama_n_ctx(handle))

    @classmethod
    def make(
        cls, model: Model, options: LlamaOptions, target: Target, *, cells: int, threads: int = 1
    ) -> ScoringContext:
        """Make a context of so many cells; raises `OutOfMemory` or `LoadFailed`."""
        params = lib.llama_context_default_params()
        flag = ctypes.create_string_buffer(2)
        params.n_ctx = -(-cells // _CELLS) * _CELLS
        params.n_outputs_max = SEQUENCES
        params.n_seq_max = 1 if alone(model, options) else SEQUENCES  # each would keep a state
        params.kv_unified = True
        # Layers that look at a window only must keep all of the prefix as well: it is cut and shared.
        params.swa_full = True
        size = max(options.batch, SEQUENCES)
        params.n_batch, params.n_ubatch = size, min(max(options.ubatch, SEQUENCES), size)
        params.n_threads = params.n_threads_batch = threads
        params.type_k, params.type_v = CACHE_TYPES[options.cache_type_k], CACHE_TYPES[options.cache_type_v]
        params.flash_attn_type = FLASH[options.flash_attention]
        params.offload_kqv = params.op_offload = target.device is not None
        params.abort_callback = ABORT_CALLBACK
        params.abort_callback_data = ctypes.cast(flag, ctypes.c_void_p)
        with log.listen() as heard:
            handle = lib.llama_init_from_model(model.handle, params)
        if not handle:
            said = log.reason(heard, "")
            if log.ran_out_of_memory(heard):
                raise OutOfMemory(f"a cache of {cells} tokens does not fit into memory: {said}")
            raise LoadFailed(f"llama.cpp makes no context for this model: {said or 'it gave no reason'}")
        return cls(int(handle), size, model.vocabulary.size, flag)

    def begin_shared(self, line: Sequence[int]) -> None:
        """Empty the batch; `line` are the sequences that its tokens belong to."""
        self.batch.count = 0
        self.batch.line(line)

    def compute_shared(self) -> int:
        """Compute the batch and empty it; see `Context.compute`."""
        self.batch.raw.n_tokens, self.batch.count = self.batch.count, 0
        outcome = int(lib.llama_decode(self.handle, self.batch.raw))
        if outcome == COMPUTED:
            lib.llama_synchronize(self.handle)
        return outcome


def alone(model: Model, options: LlamaOptions) -> bool:
    """Say whether each sequence is computed in full and by itself.

    Memory that is a state (Mamba and its kin) can neither be cut nor shared in part; and where a token lies in a pool
    of cells that others use as well decides in which order attention adds up.
    """
    return model.recurrent or options.deterministic
