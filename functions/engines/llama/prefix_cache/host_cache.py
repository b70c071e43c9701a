"""The attic: prefixes that nobody uses now, as llama.cpp's states in plain memory instead of cells of the cache.

In the cache they would take room, and attention's time at every step; from here they come back at the price of a copy.
It knows tokens and states, and nothing of slots or requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

LEAST = 32
"""Tokens for which it is worth while: fewer are computed as fast."""


class Store(Protocol):
    """What an attic asks of a context; see `Context`."""

    def save(self, sequence: int) -> Any: ...  # noqa: D102
    def restore(self, sequence: int, state: Any) -> bool: ...  # noqa: D102


class SavedSequence:
    """One prefix."""

    __slots__ = ("adapter", "size", "state", "tokens", "used")

    def __init__(self, tokens: list[int], adapter: str | None, state: Any, used: int) -> None:
        self.tokens = tokens
        self.adapter = adapter
        self.state = state
        self.size = len(state)
        self.used = used


class HostCache:
    """Prefixes of `bound` bytes in all, of which the least recently used go first."""

    def __init__(self, store: Store, bound: int) -> None:
        self._store = store
        self._bound = bound
        self._parked: list[SavedSequence] = []
        self._clock = 0

    def __iter__(self) -> Iterator[SavedSequence]:
        """Iterate over what is there, the most recently used first."""
        return iter(sorted(self._parked, key=lambda one: -one.used))

    def put(self, sequence: int, tokens: list[int], adapter: str | None) -> None:
        """Take a copy of what memory holds for a sequence, unless it is not worth it; it stays there as well."""
        if len(tokens) < LEAST:
            return
        self._clock += 1
        for one in self._parked:
            if one.adapter == adapter and one.tokens[: len(tokens)] == tokens:
                one.used = self._clock  # it is here already
                return
        state = self._store.save(sequence)
        if state is None or len(state) > self._bound:
            return
        self._parked = [
            one for one in self._parked if one.adapter != adapter or tokens[: len(one.tokens)] != one.tokens
        ]
        self._parked.append(SavedSequence(tokens, adapter, state, self._clock))
        self._parked.sort(key=lambda one: one.used)
        while sum(one.size for one in self._parked) > self._bound:
            del self._parked[0]

    def fetch(self, parked: SavedSequence, sequence: int) -> bool:
        """Bring a prefix into an empty sequence; what memory does not take is forgotten."""
        self._clock += 1
        parked.used = self._clock
        if self._store.restore(sequence, parked.state):
            return True
        self._parked = [one for one in self._parked if one is not parked]
        return False
