"""The candidate tokens of a sampler chain, as llama.cpp's `llama_token_data_array`.

For chains that begin with top-k, only tokens near the maximum are passed: filling in and sorting a whole vocabulary for
each token costs more than the rest of sampling.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from functions.engines.llama.model.native_library import lib

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_MOST = 1024
"""Largest `top_k` for which preselecting tokens is faster."""
_MARGIN = 8.0
_SPREAD = 16
"""Candidates for each of the `top_k`, above which the margin is narrowed."""


class Candidates:
    """Selects the candidates of one sequence. Its arrays are made once: after a step all code and data are cold."""

    def __init__(self, size: int, top_k: int) -> None:
        self._top_k = top_k if 0 < top_k <= min(_MOST, size // 8) else 0
        self._margin = _MARGIN
        """Tokens within this distance of the maximum logit are candidates; adapted after every call."""
        self._near = np.empty(size if self._top_k else 0, np.bool_)
        self._all = np.arange(0 if self._top_k else size)
        self._reserve(min(size, _SPREAD * self._top_k) if self._top_k else size)

    def gather(self, logits: NDArray[np.float32], best: int) -> Any:
        """Return at least the `top_k` most likely tokens, or all; valid until the next call."""
        if not self._top_k:
            return self._fill(self._all, logits)
        ids = self._preselect(logits, float(logits[best]))
        return self._fill(ids, logits.take(ids))

    def _preselect(self, logits: NDArray[np.float32], highest: float) -> NDArray[np.intp]:
        while True:
            np.greater_equal(logits, np.float32(highest - self._margin), out=self._near)
            ids = self._near.nonzero()[0]
            if len(ids) > _SPREAD * self._top_k:
                self._margin *= 0.8
            if len(ids) >= self._top_k or self._margin > 1e6:
                return ids
            self._margin *= 1.5

    def _fill(self, ids: NDArray[np.intp], logits: NDArray[np.float32]) -> Any:
        count = len(ids)
        if count > len(self._ids):
            self._reserve(count)
        self._ids[:count], self._logits[:count] = ids, logits
        array = self._array
        array.size, array.selected, array.sorted = count, -1, False
        return array

    def _reserve(self, count: int) -> None:
        """Make room for so many candidates; samplers write their probabilities themselves."""
        self._held = np.zeros(count, _CANDIDATE)
        self._ids, self._logits = self._held["id"], self._held["logit"]
        data = self._held.ctypes.data_as(lib.llama_token_data_p)
        self._array = lib.llama_token_data_array(data=data, size=0, selected=-1, sorted=False)
