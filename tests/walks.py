"""Sizes of random tests: short with fixed seeds in `make test`, full with drawn seeds in `make soak`.

`make soak` sets SOAK_SEED; all seeds of its tests follow from it, in every process alike.
"""

from __future__ import annotations

import os
import random

import hypothesis

SOAK_SEED = os.environ.get("SOAK_SEED")


def seeds(short: int, full: int, first: int = 0) -> list[int]:
    """Return `short` seeds from `first` on, or, under `make soak`, `full` seeds drawn from SOAK_SEED."""
    if SOAK_SEED is None:
        return list(range(first, first + short))
    return random.Random(f"{SOAK_SEED} {first}").sample(range(1 << 32), full)


def size(short: int, full: int) -> int:
    """Return how many steps a walk takes."""
    return short if SOAK_SEED is None else full


def examples(short: int, full: int) -> hypothesis.settings:
    """Return Hypothesis' settings: so many examples without a deadline, drawn anew only under `make soak`."""
    return hypothesis.settings(max_examples=size(short, full), deadline=None, derandomize=SOAK_SEED is None)
