"""Memory estimate of a scoring context, without reading the weights."""

from __future__ import annotations

import msgspec

from functions.engines.llama.memory.devices import Target
from functions.engines.llama.memory.estimate import BYTES_PER_CELL, ContextSize, MemoryEstimate, read_sizes
from functions.engines.llama.model import log
from functions.engines.llama.scoring.context import ScoringContext
from host.function import RAM


class ScoringEstimate(MemoryEstimate):
    """Estimates of contexts for scoring, cached on disk."""

    def scoring(self, target: Target, cells: int) -> ContextSize:
        """Estimate the bytes of a context of so many cells; raises `LoadFailed`."""
        key = f"scoring {cells} {self._cache_key(target)}"
        known = self._cache().get(key)
        if known is not None:
            return msgspec.convert(known, ContextSize)
        model = self._open(target)
        with log.listen(debug=True) as lines:
            ScoringContext.make(model, self._options, target, cells=cells).close()
        size = read_sizes([line for _, line in lines])
        size.cache[RAM] = size.cache.get(RAM, 0) + cells * BYTES_PER_CELL
        self._cache().put(key, msgspec.to_builtins(size))
        return size
