"""The bytes a pooled model will take, weighed as those of a generating one are, without touching the weights."""

from __future__ import annotations

import msgspec

from functions.engines.llama.memory.devices import Target
from functions.engines.llama.memory.estimate import ContextSize, MemoryEstimate, read_sizes
from functions.engines.llama.model import log
from functions.engines.llama.pooled.context import PooledContext, look, outputs, segmented
from functions.engines.llama.pooled.pooling import Nature, Pooling
from host.function import RAM


class PooledEstimate(MemoryEstimate):
    """Weighs contexts that give vectors; what was weighed before is looked up."""

    def nature(self) -> Nature:
        """Return what the model is; raises `LoadFailed`."""
        known = self._book().get("nature")
        if known is not None:
            return msgspec.convert(known, Nature)
        found = look(self._open(Target()), self._options, Target())
        self._book().put("nature", msgspec.to_builtins(found))
        return found

    def pooled(self, target: Target, pooling: Pooling, longest: int) -> ContextSize:
        """Weigh a context for inputs of up to `longest` tokens; raises `LoadFailed`."""
        known = self.nature()
        typed = " in segments" if segmented(known, pooling) else ""
        key = f"pooled {pooling.kind}{typed} {pooling.stepwise} {longest} {self._situation(target)}"
        weighed = self._book().get(key)
        if weighed is not None:
            return msgspec.convert(weighed, ContextSize)
        model = self._open(target)
        with log.listen(debug=True) as heard:
            PooledContext.open(model, self._options, target, known=known, pooling=pooling, longest=longest).close()
        size = read_sizes([line for _, line in heard])
        size.compute[RAM] = size.compute.get(RAM, 0) + outputs(self._options, known, pooling, longest)
        self._book().put(key, msgspec.to_builtins(size))
        return size
