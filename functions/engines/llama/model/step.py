"""Runs llama_decode over a batch, with as many threads as the steps before it showed to be fastest."""

from __future__ import annotations

import time
from typing import Any

from functions.engines.llama.model.native_library import lib, quick
from functions.engines.llama.model.thread_count import ThreadCount

COMPUTED = 0


class Step:
    """The steps of one context; without a `ThreadCount` they keep the number of threads the context was made with."""

    def __init__(self, handle: int, threads: ThreadCount | None = None) -> None:
        self._handle = handle
        self._threads = threads

    def compute(self, batch: Any) -> int:
        """Compute a `llama_batch` that is not empty and wait for its end; returns llama.cpp's code."""
        if self._threads is None:
            return self._decode(batch)
        tokens = batch.n_tokens
        count = self._threads.of(tokens)
        quick.llama_set_n_threads(self._handle, count, count)
        began = time.perf_counter()
        outcome = self._decode(batch)
        if outcome == COMPUTED:
            self._threads.record(tokens, time.perf_counter() - began)
        return outcome

    def _decode(self, batch: Any) -> int:
        outcome = int(lib.llama_decode(self._handle, batch))
        if outcome == COMPUTED:
            lib.llama_synchronize(self._handle)  # so that asking for logits never waits, and can keep the lock
        return outcome
