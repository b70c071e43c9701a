"""Prefixes that stay in memory when a call is over, each in a sequence of its own, the least recently used going first.

It knows ids, lengths and how many cells there are; who computes what is missing is not its business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Memory(Protocol):
    """What a context's memory does with sequences."""

    def copy(self, source: int, target: int, length: int, start: int = 0) -> None: ...  # noqa: D102
    def cut(self, sequence: int, length: int) -> bool: ...  # noqa: D102
    def forget(self, sequence: int) -> None: ...  # noqa: D102


class ScoringPrefixes:
    """The sequences 0 to `count` - 1, and what they hold of `cells`."""

    def __init__(self, memory: Memory, *, count: int, cells: int) -> None:
        self._memory = memory
        self._cells = cells
        self._free = list(range(count))
        self._held: dict[int, list[int]] = {}
        """Sequence -> its ids; the one used last comes last."""

    def place(self, prefix: list[int], more: int) -> tuple[int, int]:
        """Return the sequence for a prefix, and how many of its tokens are there, with cells left for `more`.

        The caller computes the missing ones and tells by `grown`, or gives the sequence up by `drop`.
        """
        source, known = self._nearest(prefix)
        if source is not None and known in (len(prefix), len(self._held[source])):
            sequence = source
        else:
            sequence = self._empty(source)
            if source == sequence:
                known = 0
            elif source is not None:
                self._memory.copy(source, sequence, known)
        ids = self._held.pop(sequence, [])
        self._held[sequence] = ids if len(ids) >= known else prefix[:known]
        self._make_room(sequence, max(len(self._held[sequence]), len(prefix)) + more)
        if len(self._held[sequence]) > len(prefix) and self._taken() + more > self._cells:
            self._cut(sequence, len(prefix))  # a longer one that nothing else can make room for
        return sequence, known

    def grown(self, sequence: int, prefix: list[int]) -> None:
        """Take note that a prefix is all there."""
        if len(prefix) > len(self._held[sequence]):
            self._held[sequence] = prefix

    def adopt(self, sequence: int, source: int, ids: list[int], length: int) -> None:
        """Let a sequence end behind `length` tokens of `ids`, and go on with the rest of them, as `source` has them.

        They have cells already: those that were left by `place` are enough for them.
        """
        self._cut(sequence, length)
        if len(ids) > length:
            self._memory.copy(source, sequence, len(ids), length)
            self._held[sequence] = ids

    def drop(self, sequence: int) -> None:
        """Forget what a sequence holds."""
        self._memory.forget(sequence)
        if self._held.pop(sequence, None) is not None:
            self._free.append(sequence)

    def lost(self) -> None:
        """Take note that memory was wiped."""
        self._free += self._held
        self._held.clear()

    def _nearest(self, prefix: Sequence[int]) -> tuple[int | None, int]:
        best, known = None, 0
        for sequence, ids in self._held.items():
            count = common(ids, prefix)
            if count and count >= known:  # of equals the one used last
                best, known = sequence, count
        return best, known

    def _empty(self, keep: int | None) -> int:
        """Return a sequence that holds nothing, if need be the one used longest ago, and `keep` only as the last."""
        if not self._free:
            self.drop(next((one for one in self._held if one != keep), next(iter(self._held))))
        return self._free.pop()

    def _cut(self, sequence: int, length: int) -> None:
        self._memory.cut(sequence, length)
        self._held[sequence] = self._held[sequence][:length]

    def _make_room(self, keep: int, need: int) -> None:
        for sequence in [one for one in self._held if one != keep]:
            if self._taken() - len(self._held[keep]) + need <= self._cells:
                return
            self.drop(sequence)

    def _taken(self) -> int:
        """Return the cells in use at most: what prefixes share is counted for each."""
        return sum(map(len, self._held.values()))


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences begin with in common."""
    count = min(len(one), len(other))
    if list(one[:count]) == list(other[:count]):
        return count
    return next(at for at in range(count) if one[at] != other[at])
