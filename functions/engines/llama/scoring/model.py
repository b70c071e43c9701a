"""A loaded model that scores: vocabulary, weights, a context and the thread that computes.

It knows the life of such a model in a worker, and nothing of requests or wire formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from functions.engines.llama.memory import devices
from functions.engines.llama.model.model import Model
from functions.engines.llama.model.vocabulary import Vocabulary
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.scoring import plan as planning
from functions.engines.llama.scoring.branch import Branch, Scores
from functions.engines.llama.scoring.context import ScoringContext, single_sequence
from functions.engines.llama.scoring.scheduler import Scheduler
from functions.engines.llama.scoring.scorer import Scorer
from host.function import Load, Plan, Progress


class ScoringModel:
    """See `score`."""

    def __init__(self, model: Model, context: ScoringContext, options: LlamaOptions, longest: int) -> None:
        self.model = model
        self.options = options
        self.longest = longest
        """Tokens of a prefix with one suffix and an answer behind it."""
        self.reuses = not single_sequence(model, options)
        """Whether branches share what is computed; else each answer is computed in full."""
        self._context = context
        scorer = Scorer(context, budget=options.batch, alone=not self.reuses)
        self._scheduler = Scheduler(scorer, context.abort)

    @staticmethod
    def plan(load: Load) -> Plan:
        """Estimate the bytes of the file; raises `LoadFailed` and `OutOfMemory`."""
        return planning.make(load)

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load the weights and start the thread; raises `LoadFailed` and `OutOfMemory`."""
        options = msgspec.msgpack.decode(load.options, type=LlamaOptions)
        target = devices.from_detail(plan.detail)
        total = Path(load.path).stat().st_size if Path(load.path).is_file() else 0

        def report(done: float) -> None:
            progress("weights", int(done * total), total)

        model = Model.open(load.path, options, target, progress=report)
        try:
            progress("cache")
            longest = plan.context or model.trained
            context = ScoringContext.make(
                model, options, target, cells=planning.cells(options, longest), threads=max(1, load.threads)
            )
        except BaseException:
            model.close()
            raise
        return cls(model, context, options, longest)

    @property
    def vocabulary(self) -> Vocabulary:
        """The file's tokenizer."""
        return self.model.vocabulary

    async def score(self, prefix: Sequence[int], branches: Sequence[Branch]) -> Scores:
        """Return how probable each answer of each branch is behind the prefix.

        A branch without a suffix is answered behind the prefix, which then has a token at least. The caller sees to it
        that prefix, suffix and answer have `longest` tokens at most, all of them of the vocabulary. Raises
        `ShuttingDown`, `OutOfMemory`, and `ColdframeError` for what cannot be computed.
        """
        return await self._scheduler.score(prefix, branches)

    def close(self) -> None:
        """End the thread and free everything."""
        self._scheduler.close()
        self._context.close()
        self.model.close()
