"""An input with what is to be made of it, and what was made of it. It knows no library that computes."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from functions.engines.batching.item import Item
from functions.engines.checkpoint.sentence.layout import VectorKind

Vector = npt.NDArray[np.float32]
Weights = tuple[npt.NDArray[np.int32], Vector]
"""Ids of the vocabulary, ascending, and the weight of each; all others weigh nothing."""


class SentenceItem(Item, frozen=True):
    """An input, and what is to be made of it."""

    kinds: tuple[VectorKind, ...] = ("dense",)
    output_mask: npt.NDArray[np.bool_] | None = None
    """The tokens that get a vector of their own; None for all."""
    attended: int | None = None
    """The tokens at the start that the others see; None for all."""


class SentenceOutput(msgspec.Struct):
    """What was made of one input."""

    dense: Vector | None = None
    sparse: Weights | None = None
    colbert: Vector | None = None
    """(tokens, size)."""
