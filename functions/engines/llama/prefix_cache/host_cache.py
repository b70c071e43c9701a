"""LRU prefix cache in host memory: saved sequence states.

Cached prefixes that no request uses would take KV cells and slow down attention in every step; a saved state takes
host memory instead, and is restored by a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from functions.engines.llama.prefix_cache.sequence_memory import SequenceStates
from functions.engines.prefix_cache.prefix_index import PrefixIndex

MIN_TOKENS = 32
"""Shorter prefixes are not saved: computing them is as fast as restoring them."""


class SavedSequence:
    """The state of one prefix, computed with one adapter (or none)."""

    __slots__ = ("adapter", "size", "state", "tokens")

    def __init__(self, tokens: list[int], adapter: str | None, state: Any) -> None:
        self.tokens = tokens
        self.adapter = adapter
        self.state = state
        self.size = len(state)
        """Bytes."""

    @property
    def cached(self) -> int:
        """Number of tokens."""
        return len(self.tokens)


class HostCache:
    """Saved prefixes of at most `limit` bytes in all; the least recently used are evicted first."""

    def __init__(self, states: SequenceStates, limit: int) -> None:
        self._states = states
        self._limit = limit
        self._index: PrefixIndex[SavedSequence] = PrefixIndex()

    def __iter__(self) -> Iterator[SavedSequence]:
        """Iterate over the saved prefixes, the most recently used first."""
        return reversed(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def put(self, sequence: int, tokens: list[int], adapter: str | None) -> None:
        """Save a copy of a sequence's state; the sequence itself is unchanged.

        Does nothing for prefixes that are too short, too large, or saved already. Replaces saved prefixes of it.
        """
        if len(tokens) < MIN_TOKENS:
            return
        same_adapter = [saved for saved in self._index if saved.adapter == adapter]
        for saved in same_adapter:
            if saved.tokens[: len(tokens)] == tokens:
                self._index.use(saved)
                return
        state = self._states.save(sequence)
        if state is None or len(state) > self._limit:
            return
        for saved in same_adapter:
            if tokens[: len(saved.tokens)] == saved.tokens:
                self._index.remove(saved)
        self._index.use(SavedSequence(tokens, adapter, state))
        self._index.evict(self._limit)

    def restore(self, saved: SavedSequence, sequence: int) -> bool:
        """Restore a saved prefix into an empty sequence; on failure it is dropped from the cache."""
        if self._states.restore(sequence, saved.state):
            self._index.use(saved)
            return True
        self._index.remove(saved)
        return False
