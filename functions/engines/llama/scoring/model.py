"""A loaded model that scores: weights, vocabulary, a context, and the thread that computes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

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
    """A model that scores answers; see `score`."""

    def __init__(self, model: Model, context: ScoringContext, options: LlamaOptions, longest: int) -> None:
        self.model = model
        self.options = options
        self.longest = longest
        """Maximum tokens of prefix, suffix and answer together."""
        self.reuses = not single_sequence(model, options)
        """Whether branches share computed tokens; else each answer is computed in full."""
        self._context = context
        scorer = Scorer(context, budget=options.batch, alone=not self.reuses)
        self._scheduler = Scheduler(scorer, context.abort)

    @staticmethod
    def plan(load: Load) -> Plan:
        """Plan the load; raises `LoadFailed` and `OutOfMemory`."""
        return planning.make(load)

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load the weights and start the thread; raises `LoadFailed` and `OutOfMemory`."""
        options = load.engine_options(LlamaOptions)
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
        """The model's tokenizer."""
        return self.model.vocabulary

    async def score(self, prefix: Sequence[int], branches: Sequence[Branch]) -> Scores:
        """Return the log-probability of each answer of each branch after the prefix.

        A branch with an empty suffix needs a prefix of at least one token. The caller ensures that prefix, suffix and
        answer have at most `longest` tokens in all, with ids of the vocabulary. Raises
        `ShuttingDown`, `OutOfMemory`, and `ColdframeError` for what cannot be computed.
        """
        return await self._scheduler.score(prefix, branches)

    def close(self) -> None:
        """End the thread and free everything."""
        self._scheduler.close()
        self._context.close()
        self.model.close()
