"""What ranking asks of a model, however it scores: texts as tokens that fit beside the query, and marks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from functions.engines.batching.item import Ids


class Mark(msgspec.Struct, frozen=True):
    """How well one piece of a document answers."""

    logit: float
    score: float


class Reading(msgspec.Struct, kw_only=True, frozen=True):
    """A query and its documents as tokens."""

    parts: list[Ids]
    """What is each document's own, and may be cut at its end or taken apart."""
    frame: int
    """Tokens beside a document's own in each input: query, prompt, special ones."""
    room: int
    """Tokens that a document may have."""
    once: int = 0
    """Tokens of the frame that are computed once for all documents."""
    state: Any = None
    """The scorer's own."""


class Scorer(Protocol):
    """A loaded model."""

    longest: int
    """Tokens of an input."""

    async def read(self, query: str, documents: Sequence[str], instruction: str | None) -> Reading:
        """Tokenise. Raises `UnsupportedParameter` for an instruction where there is no place for one."""

    async def marks(self, reading: Reading, parts: Sequence[Ids]) -> list[Mark]:
        """Return a mark for each part, in their order; raises `QueueFull`, `ShuttingDown`, `OutOfMemory`."""

    def detail(self) -> dict[str, Any]:
        """Return what was chosen, for `facts`."""

    def close(self) -> None:
        """End the threads."""


def after(head: Sequence[int], wholes: Sequence[Ids]) -> tuple[list[int], list[Ids]]:
    """Return the start that all `wholes` share with `head`, and what follows it in each.

    A tokenizer may join the end of `head` with what comes behind it, so texts are tokenised as wholes and parted here.
    """
    start = np.array(head, dtype=np.int32)
    keep = len(start)
    for whole in wholes:
        least = min(keep, len(whole))
        differs = np.flatnonzero(whole[:least] != start[:least])
        keep = int(differs[0]) if len(differs) else least
    return list(head[:keep]), [whole[keep:] for whole in wholes]
