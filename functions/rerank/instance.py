"""A loaded reranker, whatever scores and whatever engine computes: requests in, scores out."""

from __future__ import annotations

import asyncio
from typing import Self

import msgspec

from functions.rerank import selftest
from functions.rerank.api import RerankRequest, Scores
from functions.rerank.options import RerankOptions
from functions.rerank.ranking import rank
from functions.rerank.scorer import Scorer
from host.function import Instance, InstanceInfo, Load

_CAPACITY = 256
"""Requests side by side; the batcher merges them, so more would only wait here instead of in the host."""


class RerankInstance(Instance):
    """What the engines' own classes, which plan and load, have in common."""

    def __init__(self, name: str, scorer: Scorer, options: RerankOptions) -> None:
        """`name` is the manifest's."""
        self._name = name
        self._scorer = scorer
        self._options = options

    @classmethod
    def checked(cls, load: Load, scorer: Scorer) -> Self:
        """Return the instance after its self-test; raises `LoadFailed`, with the scorer closed. Blocking code."""
        options = load.task_options(RerankOptions)
        if options.self_test:
            try:
                asyncio.run(selftest.look(scorer, options))
            except BaseException:
                scorer.close()
                raise
        return cls(load.manifest.name, scorer, options)

    async def answer(self, request: RerankRequest) -> Scores:
        """Return the documents' scores. Raises `InvalidRequest` and `InputTooLong`, naming the field and its index."""
        found = await rank(self._scorer, request, self._options)
        return msgspec.structs.replace(found, model=self._name)

    def info(self) -> InstanceInfo:
        """Return what was chosen."""
        detail = {"self_test": self._options.self_test} | self._scorer.detail()
        return InstanceInfo(capacity=_CAPACITY, context=self._scorer.longest, detail=detail)

    def close(self) -> None:
        """End the threads and free the model."""
        self._scorer.close()
