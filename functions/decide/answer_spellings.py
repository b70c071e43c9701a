"""Answers with alternative spellings as token ids, and their probabilities; answers are mutually exclusive.

A spelling that is a prefix of another, such as `red` of `redder`, counts only where the longer one does not follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Ids = tuple[int, ...]
_NEVER = -math.inf


class AnswerSpellings:
    """The spellings of a question's answers."""

    def __init__(self, answers: Sequence[Sequence[Ids]]) -> None:
        """`answers` has the spellings of each answer; one that two answers share counts for the first."""
        self.token_ids: list[Ids] = []
        """The distinct spellings to score."""
        self._answers: list[int] = []
        self._count = len(answers)
        seen: dict[Ids, int] = {}
        for at, spellings in enumerate(answers):
            for ids in spellings:
                if ids and ids not in seen:
                    seen[ids] = len(self.token_ids)
                    self.token_ids.append(ids)
                    self._answers.append(at)
        self._longer: list[list[int]] = [[] for _ in self.token_ids]
        for ids, at in seen.items():
            shorter = next((seen[ids[:end]] for end in range(len(ids) - 1, 0, -1) if ids[:end] in seen), None)
            if shorter is not None:
                self._longer[shorter].append(at)

    def answer_logprobs(self, logprobs: Sequence[float]) -> list[float]:
        """Return the log-probability of each answer from those of `token_ids`; NaN where one of an answer's is NaN."""
        pools: list[list[float]] = [[] for _ in range(self._count)]
        for at, logprob in enumerate(logprobs):
            longer = [logprobs[other] for other in self._longer[at]]
            pools[self._answers[at]].append(_exclude(logprob, longer))
        return [logsumexp(pool) for pool in pools]


def logsumexp(values: Sequence[float]) -> float:
    """Return the logarithm of the sum of exponentials; minus infinity for no values."""
    top = max(values, default=_NEVER)
    if math.isnan(sum(values)):
        return math.nan
    if math.isinf(top):
        return top
    return top + math.log(math.fsum(math.exp(value - top) for value in values))


def softmax(values: Sequence[float], temperature: float = 1.0) -> list[float]:
    """Return probabilities that sum to 1; at least one value must be finite."""
    top = max(values)
    weights = [math.exp((value - top) / temperature) for value in values]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _exclude(logprob: float, longer: Sequence[float]) -> float:
    """Return the log-probability of a spelling without that of the longer ones it is a prefix of."""
    if not longer or math.isinf(logprob):
        return logprob
    left = 1 - math.fsum(math.exp(other - logprob) for other in longer)
    if math.isnan(left):
        return math.nan
    return logprob + math.log(left) if left > 0 else _NEVER
