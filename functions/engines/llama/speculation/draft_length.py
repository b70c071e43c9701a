"""Adapts draft length to recent acceptance."""

from __future__ import annotations


class DraftLength:
    """Number of tokens to draft for one sequence: doubled if all were accepted, else as many as were accepted."""

    __slots__ = ("_most", "accepted", "count", "rejected")

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = most
        self.accepted = 0
        self.rejected = 0

    def learn(self, drafted: int, right: int) -> None:
        """Record how many of the drafted tokens were accepted."""
        self.accepted += right
        self.rejected += drafted - right
        self.count = min(self._most, self.count * 2) if right == drafted else max(1, right)
