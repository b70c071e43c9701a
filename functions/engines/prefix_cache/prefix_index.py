"""An index of cached prefixes: finds the longest that a prompt begins with, and evicts the least recently used.

The index holds no model state. Entries say how many of their tokens are cached (`cached`) and what they cost (`size`,
in tokens or bytes, as the cache that owns them counts); the owner frees the state of entries that `evict` returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from functions.engines.prefix_cache.common_prefix import common_prefix


class CachedPrefix(Protocol):
    """One entry of a prefix cache. Entries are compared by identity."""

    @property
    def tokens(self) -> Sequence[int]:
        """Token ids, the first `cached` of which have a state."""

    @property
    def cached(self) -> int:
        """Number of leading tokens whose state is cached."""

    @property
    def size(self) -> int:
        """What the entry counts for against the cache's limit."""


P = TypeVar("P", bound=CachedPrefix)


class PrefixIndex(Generic[P]):
    """The entries of one prefix cache in the order of their last use."""

    def __init__(self, entries: Iterable[P] = ()) -> None:
        """Start with `entries`, the least recently used first."""
        self._entries: dict[P, None] = dict.fromkeys(entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, entry: object) -> bool:
        return entry in self._entries

    def __iter__(self) -> Iterator[P]:
        """Iterate over a snapshot of the entries, the least recently used first."""
        return iter(list(self._entries))

    def __reversed__(self) -> Iterator[P]:
        """Iterate over a snapshot of the entries, the most recently used first."""
        return reversed(list(self._entries))

    @property
    def size(self) -> int:
        """The size of all entries; tokens or bytes that two entries share count twice."""
        return sum(entry.size for entry in self._entries)

    def longest(self, tokens: Sequence[int], limit: int | None = None) -> tuple[P | None, int]:
        """Return the entry that shares the longest prefix with `tokens`; see `longest_prefix`."""
        return longest_prefix(reversed(self), tokens, limit)

    def use(self, entry: P) -> None:
        """Add the entry, or mark it as the most recently used."""
        self._entries.pop(entry, None)
        self._entries[entry] = None

    def remove(self, entry: P) -> None:
        """Remove the entry if it is there."""
        self._entries.pop(entry, None)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()

    def evict(self, limit: int, keep: P | None = None) -> list[P]:
        """Remove the least recently used entries, except `keep`, until the size is at most `limit`; returns them."""
        evicted: list[P] = []
        total = self.size
        for entry in self:
            if total <= limit:
                break
            if entry is not keep:
                total -= entry.size
                self.remove(entry)
                evicted.append(entry)
        return evicted


def longest_prefix(entries: Iterable[P], tokens: Sequence[int], limit: int | None = None) -> tuple[P | None, int]:
    """Return the entry that shares the longest cached prefix with `tokens`, and its length, at most `limit`.

    Of several with the same length, the first. (None, 0) if none shares a token.
    """
    most = len(tokens) if limit is None else limit
    best: P | None = None
    length = 0
    for entry in entries:
        shared = common_prefix(entry.tokens, tokens, min(most, entry.cached))
        if shared > length:
            best, length = entry, shared
    return best, length
