"""The input and output of sentence models: an item with the kinds of vectors to make, and the vectors made."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from functions.engines.batching.item import Item
from functions.engines.checkpoint.sentence.layout import VectorKind

Vector = npt.NDArray[np.float32]
Weights = tuple[npt.NDArray[np.int32], Vector]
"""A sparse vector: ascending token ids and their weights."""


class SentenceItem(Item, frozen=True):
    """An input with the kinds of vectors to make of it."""

    kinds: tuple[VectorKind, ...] = ("dense",)
    output_mask: npt.NDArray[np.bool_] | None = None
    """(tokens,): the tokens that get a vector of their own (ColBERT); None for all."""
    attended: int | None = None
    """The number of tokens at the start that are attended to; None for all."""


class SentenceOutput(msgspec.Struct):
    """The vectors of one input; None for kinds that were not asked for."""

    dense: Vector | None = None
    sparse: Weights | None = None
    colbert: Vector | None = None
    """(tokens, size)."""
