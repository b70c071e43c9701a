"""Slots: the sequences a context holds side by side, and what prompts they have already been through.

A new prompt takes over, or copies, the slot that shares the longest prefix with it. It knows tokens and the few things
a memory can do with sequences, and nothing of requests, sampling or llama.cpp.
"""

from __future__ import annotations

from typing import Protocol

_BLOCK = 256
WORTH_WAITING = 32
"""Tokens that a prompt in progress must bring another one, for that to wait instead of computing them too."""


class Memory(Protocol):
    """What slots ask of a context; see `Context`."""

    def first(self, sequence: int) -> int: ...  # noqa: D102
    def cut(self, sequence: int, length: int) -> bool: ...  # noqa: D102
    def forget(self, sequence: int) -> None: ...  # noqa: D102
    def copy(self, source: int, target: int, length: int) -> None: ...  # noqa: D102


class Slot:
    """One sequence: its tokens, and how many of them, from the start, are computed."""

    __slots__ = ("busy", "computed", "id", "tokens", "used")

    def __init__(self, id_: int) -> None:
        self.id = id_
        self.tokens: list[int] = []
        self.computed = 0
        self.busy = False
        self.used = 0


class Slots:
    """All slots of one context."""

    def __init__(self, count: int, memory: Memory, *, reuse: bool = True, shares: bool = True, window: int = 0) -> None:
        self._slots = [Slot(index) for index in range(count)]
        self._memory = memory
        self._reuse = reuse
        self._shares = shares and reuse
        """Whether sequences may share cells: not where memory keeps one state, or a window, per sequence."""
        self._window = window
        self._clock = 0

    @property
    def free(self) -> int:
        """How many slots are idle."""
        return sum(not slot.busy for slot in self._slots)

    def take(self, tokens: list[int]) -> Slot | None:
        """Return a slot that holds as much of the beginning of `tokens` as can be had, or None for "not now".

        `slot.computed` tokens are in memory; at least the last token is left to compute, for its logits. "Not now" is
        said when all slots are busy, and when one of them is just computing a prefix that this prompt needs too.
        """
        idle = [slot for slot in self._slots if not slot.busy]
        if not idle:
            return None
        most = len(tokens) - 1
        source, shared = self._longest(tokens, most, self._slots if self._shares else idle)
        if self._shares and self._promised(tokens, most) - shared >= WORTH_WAITING:
            return None
        slot = self._place(idle, source, shared)
        self._clock += 1
        slot.busy, slot.used, slot.tokens = True, self._clock, tokens
        return slot

    def release(self, slot: Slot) -> None:
        """Give a slot back; what it has computed stays for prompts to come."""
        slot.tokens = slot.tokens[: slot.computed]
        slot.busy = False

    def drop(self, slot: Slot) -> None:
        """Forget what a slot has computed; a busy one computes its tokens again."""
        self._memory.forget(slot.id)
        slot.computed = 0
        if not slot.busy:
            slot.tokens = []

    def drop_idle(self) -> bool:
        """Forget what idle slots keep; says whether there was anything."""
        kept = [slot for slot in self._slots if not slot.busy and slot.computed]
        for slot in kept:
            self.drop(slot)
        return bool(kept)

    def _longest(self, tokens: list[int], most: int, among: list[Slot]) -> tuple[Slot | None, int]:
        if not self._reuse:
            return None, 0
        lengths = [(common_prefix(slot.tokens, tokens, min(most, slot.computed)), slot) for slot in among]
        length, slot = max(lengths, key=lambda pair: (pair[0], not pair[1].busy))
        return (slot, length) if length else (None, 0)

    def _promised(self, tokens: list[int], most: int) -> int:
        """Return the longest prefix that busy slots share with `tokens` once they are through their prompts."""
        return max((common_prefix(slot.tokens, tokens, most) for slot in self._slots if slot.busy), default=0)

    def _place(self, idle: list[Slot], source: Slot | None, shared: int) -> Slot:
        """Bring the shared tokens into one of the idle slots and return it."""
        if source is not None and not source.busy and (not self._shares or shared * 2 >= source.computed):
            self._keep(source, shared)
            return source
        slot = min(idle, key=lambda one: (one.computed > 0, one.used))
        if slot is source:
            self._keep(slot, shared)
            return slot
        self.drop(slot)
        if source is not None:
            self._memory.copy(source.id, slot.id, shared)
            slot.computed = shared
        return slot

    def _keep(self, slot: Slot, length: int) -> None:
        """Cut the slot's memory down to `length` tokens, or to none where it cannot be cut there."""
        gone = self._window and self._memory.first(slot.id) > max(0, length - self._window)
        if gone or not self._memory.cut(slot.id, length):
            self._memory.forget(slot.id)
            length = 0
        slot.computed = length


def common_prefix(one: list[int], other: list[int], most: int) -> int:
    """Return how many tokens, `most` at the highest, both lists begin with."""
    most = min(most, len(one), len(other))
    at = 0
    while at < most and one[at : min(at + _BLOCK, most)] == other[at : min(at + _BLOCK, most)]:
        at += _BLOCK
    while at < most and one[at] == other[at]:
        at += 1
    return min(at, most)
