"""Memory estimate of a pooled model: traits, weights, and contexts with pooling, without reading the weights."""

from __future__ import annotations

import msgspec

from functions.engines.llama.memory.devices import Target
from functions.engines.llama.memory.estimate import ContextSize, MemoryEstimate, read_sizes
from functions.engines.llama.model import log
from functions.engines.llama.pooled.context import PooledContext, inspect_model, outputs, uses_token_types
from functions.engines.llama.pooled.pooling import ModelTraits, Pooling
from host.function import RAM


class PooledEstimate(MemoryEstimate):
    """Estimates of contexts with pooling, cached on disk."""

    def traits(self) -> ModelTraits:
        """Return what the model is; raises `LoadFailed`."""
        known = self._cache().get("traits")
        if known is not None:
            return msgspec.convert(known, ModelTraits)
        found = inspect_model(self._open(Target()), self._options, Target())
        self._cache().put("traits", msgspec.to_builtins(found))
        return found

    def pooled(self, target: Target, pooling: Pooling, longest: int) -> ContextSize:
        """Estimate the bytes of a context for inputs of up to `longest` tokens; raises `LoadFailed`."""
        known = self.traits()
        typed = " in segments" if uses_token_types(known, pooling) else ""
        key = f"pooled {pooling.kind}{typed} {pooling.stepwise} {longest} {self._cache_key(target)}"
        cached = self._cache().get(key)
        if cached is not None:
            return msgspec.convert(cached, ContextSize)
        model = self._open(target)
        with log.listen(debug=True) as lines:
            PooledContext.open(model, self._options, target, known=known, pooling=pooling, longest=longest).close()
        size = read_sizes([line for _, line in lines])
        size.compute[RAM] = size.compute.get(RAM, 0) + outputs(self._options, known, pooling, longest)
        self._cache().put(key, msgspec.to_builtins(size))
        return size
