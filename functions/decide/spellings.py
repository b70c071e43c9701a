"""Answers as events that exclude each other, from the probabilities of how they may be spelled.

A spelling that another one goes on from, such as `red` before `redder`, is only said where the longer one is not. It
knows token ids and logarithms, and nothing of questions or models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Ids = tuple[int, ...]
_NEVER = -math.inf


class Spellings:
    """Some answers, each with all its spellings as token ids."""

    def __init__(self, answers: Sequence[Sequence[Ids]]) -> None:
        """Where two answers have a spelling in common, the first of them has it."""
        self.spellings: list[Ids] = []
        """What is to be scored, each once."""
        self._of: list[int] = []
        self._count = len(answers)
        seen: dict[Ids, int] = {}
        for at, spellings in enumerate(answers):
            for ids in spellings:
                if ids and ids not in seen:
                    seen[ids] = len(self.spellings)
                    self.spellings.append(ids)
                    self._of.append(at)
        self._longer: list[list[int]] = [[] for _ in self.spellings]
        for ids, at in seen.items():
            shorter = next((seen[ids[:end]] for end in range(len(ids) - 1, 0, -1) if ids[:end] in seen), None)
            if shorter is not None:
                self._longer[shorter].append(at)

    def logs(self, logs: Sequence[float]) -> list[float]:
        """Return the log-probability of each answer, from those of the spellings; NaN where one of these is."""
        pools: list[list[float]] = [[] for _ in range(self._count)]
        for at, log in enumerate(logs):
            longer = [logs[other] for other in self._longer[at]]
            pools[self._of[at]].append(_without(log, longer))
        return [total(pool) for pool in pools]


def total(logs: Sequence[float]) -> float:
    """Return the logarithm of the sum of probabilities."""
    top = max(logs, default=_NEVER)
    if math.isnan(sum(logs)):
        return math.nan
    if math.isinf(top):
        return top
    return top + math.log(math.fsum(math.exp(log - top) for log in logs))


def shares(logs: Sequence[float], temperature: float = 1.0) -> list[float]:
    """Return probabilities that sum to 1, from log-probabilities of which one at least is finite."""
    top = max(logs)
    weights = [math.exp((log - top) / temperature) for log in logs]
    whole = math.fsum(weights)
    return [weight / whole for weight in weights]


def _without(log: float, longer: Sequence[float]) -> float:
    """Return the log-probability of a spelling that does not go on as one of the longer ones."""
    if not longer or math.isinf(log):
        return log
    left = 1 - math.fsum(math.exp(other - log) for other in longer)
    if math.isnan(left):
        return math.nan
    return log + math.log(left) if left > 0 else _NEVER
