"""Prompt lookup: drafts the tokens that followed the last n-gram where it occurred before in the text.

Source: prompt lookup decoding (A. Saxena, 2023).
"""

from __future__ import annotations

_LONG, _SHORT = 3, 2
"""Tokens that must be the same; the longer match is taken where there is one."""


class NgramIndex:
    """An index of one text's n-grams, which grows with the text."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        """n-gram -> where its last occurrence, but for the one at the very end, is over."""
        self._seen = 0

    def draft(self, tokens: list[int], count: int) -> list[int]:
        """Return up to `count` tokens that may come after these; empty if the last n-gram did not occur before."""
        self._read(tokens)
        for size in (_LONG, _SHORT):
            end = self._ends.get(tuple(tokens[-size:])) if len(tokens) > size else None
            if end is not None:
                return tokens[end : end + count]
        return []

    def _read(self, tokens: list[int]) -> None:
        """Index every n-gram that ends before the last token."""
        for end in range(max(self._seen, _SHORT), len(tokens)):
            for size in (_LONG, _SHORT):
                if end >= size:
                    self._ends[tuple(tokens[end - size : end])] = end
        self._seen = max(self._seen, len(tokens))
