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


class Candidates:
    """Selects the candidates of one sequence."""

    def __init__(self, size: int, top_k: int) -> None:
        self._size = size
        self._top_k = top_k if 0 < top_k <= min(_MOST, size // 8) else 0
        self._margin = _MARGIN
        """Tokens within this distance of the maximum logit are candidates; adapted after every call."""
        self._held: NDArray[Any] | None = None

    def gather(self, logits: NDArray[np.float32], best: int) -> Any:
        """Return at least the `top_k` most likely tokens, or all; valid until the next call."""
        if not self._top_k:
            return self._array(np.arange(self._size), logits)
        ids = self._preselect(logits, logits[best])
        return self._array(ids, logits[ids])

    def _preselect(self, logits: NDArray[np.float32], highest: np.float32) -> NDArray[np.intp]:
        while True:
            ids = np.flatnonzero(logits >= highest - np.float32(self._margin))
            if len(ids) > 16 * self._top_k:
                self._margin *= 0.8
            if len(ids) >= self._top_k or self._margin > 1e6:
                return ids
            self._margin *= 1.5

    def _array(self, ids: NDArray[np.intp], logits: NDArray[np.float32]) -> Any:
        held = self._held = np.empty(len(ids), _CANDIDATE)
        held["id"], held["logit"], held["p"] = ids, logits, 0.0
        return lib.llama_token_data_array(
            data=held.ctypes.data_as(lib.llama_token_data_p), size=len(ids), selected=-1, sorted=False
        )
