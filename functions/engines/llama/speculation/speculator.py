"""Speculation: who guesses the next tokens of sequences, and how many it makes sense to guess.

It knows the guessers by their one verb, and nothing of batches: the decoder has the model check what is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Protocol

from functions.engines.llama.decode.sequence import Sequence
from functions.engines.llama.speculation.prompt_lookup import NgramIndex


class Speculator(Protocol):
    """Guesses for the sequences of a step."""

    def guess(self, sequences: Many[Sequence]) -> list[list[int]]:
        """Return the tokens that may come next for each, up to what its `guess` allows, none where it has no idea."""

    def close(self) -> None:
        """Give back what it holds."""


class PromptLookup:
    """Guesses from each sequence's own text."""

    def __init__(self) -> None:
        self._texts: dict[Sequence, NgramIndex] = {}

    def guess(self, sequences: Many[Sequence]) -> list[list[int]]:
        """See `Speculator`."""
        self._texts = {sequence: self._texts.get(sequence) or NgramIndex() for sequence in sequences}
        return [self._texts[sequence].guess(sequence.tokens, sequence.guesses) for sequence in sequences]

    def close(self) -> None:
        """Nothing to give back."""
