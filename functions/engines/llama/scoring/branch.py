"""Input and output of scoring: branches of token ids after a shared prefix, and log-probabilities of their answers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray


class Branch(msgspec.Struct, frozen=True):
    """A suffix after the shared prefix, and the answers to score after it."""

    suffix: Sequence[int]
    answers: Sequence[Sequence[int]]
    """Token ids, at least one each."""


class Scores(msgspec.Struct, frozen=True):
    """What `ScoringModel.score` returns."""

    logprobs: list[NDArray[np.float64]]
    """For each branch the natural logarithm of each answer's probability: the sum over its tokens of the log-softmax of
    the model's logits. NaN where the model gave no number."""
    cached: int
    """Tokens of the prefix that had been computed for an earlier call."""
    tokens: int
    """Tokens of the prefix and of all suffixes, those that suffixes have in common counted once."""
