"""The loaded model of the rerank function, on any engine and with any scoring method."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Literal, Self

import msgspec

from functions.rerank import self_test
from functions.rerank.api import RerankRequest, Scores
from functions.rerank.options import RerankOptions
from functions.rerank.ranking import rank
from functions.rerank.scorer import Scorer
from host.function import Instance, InstanceInfo, Load, Plan, Progress

Method = Literal["cross_encoder", "yes_no", "cosine"]
"""How documents are scored; see `RerankOptions.method`."""

_CAPACITY = 256
"""Concurrent requests. The batcher merges them, so more would only wait here instead of in the host."""


class RerankInstance(Instance):
    """A loaded reranker. Subclasses plan, and load the scorer."""

    def __init__(self, name: str, scorer: Scorer, options: RerankOptions) -> None:
        """`name` is the manifest's."""
        self._name = name
        self._scorer = scorer
        self._options = options

    @classmethod
    @abstractmethod
    def load_scorer(cls, load: Load, plan: Plan, progress: Progress) -> Scorer:
        """Load tokenizer and weights; raises `LoadFailed` and `OutOfMemory`."""

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load the scorer and run its self-test; raises `LoadFailed` and `OutOfMemory`, with the scorer closed."""
        scorer = cls.load_scorer(load, plan, progress)
        options = load.task_options(RerankOptions)
        if options.self_test:
            try:
                asyncio.run(self_test.run(scorer, options))
            except BaseException:
                scorer.close()
                raise
        return cls(load.manifest.name, scorer, options)

    async def answer(self, request: RerankRequest) -> Scores:
        """Return the documents' scores. Raises `InvalidRequest` and `InputTooLong`, naming the field and its index."""
        scores = await rank(self._scorer, request, self._options)
        return msgspec.structs.replace(scores, model=self._name)

    def info(self) -> InstanceInfo:
        """Return the capacity, the longest sequence in tokens, and the scorer's detail."""
        detail = {"self_test": self._options.self_test} | self._scorer.detail()
        return InstanceInfo(capacity=_CAPACITY, context=self._scorer.longest, detail=detail)

    def close(self) -> None:
        """End the threads and free the model."""
        self._scorer.close()


def with_method(plan: Plan, method: Method, reason: str) -> Plan:
    """Return the plan with a note about the scoring method and the reason for it."""
    return msgspec.structs.replace(plan, notes=(*plan.notes, f"method: {method} ({reason})"))
