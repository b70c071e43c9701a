"""Adapts draft length to recent acceptance."""

from __future__ import annotations


class DraftLength:
    """How many tokens to draft for one sequence: as many as were right lately, and one more each time all were."""

    __slots__ = ("_most", "accepted", "count", "rejected")

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = most
        self.accepted = 0
        self.rejected = 0

    def learn(self, drafted: int, right: int) -> None:
        """Take note of how many of the drafted tokens were right."""
        self.accepted += right
        self.rejected += drafted - right
        self.count = min(self._most, self.count * 2) if right == drafted else max(1, right)
