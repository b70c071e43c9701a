"""The interface of speculative decoding (`Speculator`), and drafting by prompt lookup.

The decoder verifies all draft tokens of a step in one batch.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Protocol

from functions.engines.llama.decode.sequence import Sequence
from functions.engines.llama.speculation.prompt_lookup import NgramIndex


class Speculator(Protocol):
    """Drafts tokens for the sequences of a step."""

    def draft(self, sequences: Many[Sequence]) -> list[list[int]]:
        """Return draft tokens for each sequence, at most its `draft_limit`, possibly none."""

    def close(self) -> None:
        """Free the resources."""


class PromptLookup:
    """Drafts from each sequence's own tokens."""

    def __init__(self) -> None:
        self._texts: dict[Sequence, NgramIndex] = {}

    def draft(self, sequences: Many[Sequence]) -> list[list[int]]:
        """See `Speculator`."""
        self._texts = {sequence: self._texts.get(sequence) or NgramIndex() for sequence in sequences}
        return [self._texts[sequence].draft(sequence.tokens, sequence.draft_limit) for sequence in sequences]

    def close(self) -> None:
        """Nothing to free."""
