"""Slots: the sequences a context holds side by side, and what prompts they have already been through.

A new prompt takes over, or copies, the slot that shares the longest prefix with it. It knows tokens and the few things
a memory can do with sequences, and nothing of requests, sampling or llama.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from functions.engines.llama.prefix_cache.host_cache import LEAST, HostCache, SavedSequence

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

    __slots__ = ("adapter", "busy", "computed", "id", "tokens", "used")

    def __init__(self, id_: int) -> None:
        self.id = id_
        self.tokens: list[int] = []
        self.computed = 0
        self.busy = False
        self.used = 0
        self.adapter: str | None = None
        """What it was computed with: other adapters make other numbers of the same tokens."""


class Kept(NamedTuple):
    """What an idle slot holds."""

    slot: int
    tokens: list[int]
    adapter: str | None


class Slots:
    """All slots of one context."""

    def __init__(
        self,
        count: int,
        memory: Memory,
        *,
        reuse: bool = True,
        shares: bool = True,
        window: int = 0,
        keep: int | None = None,
        attic: HostCache | None = None,
    ) -> None:
        self._slots = [Slot(index) for index in range(count)]
        self._memory = memory
        self._reuse = reuse
        self._shares = shares and reuse
        """Whether sequences may share cells: not where memory keeps one state, or a window, per sequence."""
        self._window = window
        self._keep_most = keep
        """Tokens that idle slots keep at most, in all; None: as many as they have."""
        self._attic = attic if reuse else None
        """Where what idle slots hold goes when somebody else begins; None: it stays."""
        self._clock = 0

    @property
    def free(self) -> int:
        """How many slots are idle."""
        return sum(not slot.busy for slot in self._slots)

    def take(self, tokens: list[int], adapter: str | None = None) -> Slot | None:
        """Return a slot that holds as much of the beginning of `tokens` as can be had, or None for "not now".

        `slot.computed` tokens are in memory; at least the last token is left to compute, for its logits. "Not now" is
        said when all slots are busy, and when one of them is just computing a prefix that this prompt needs too.
        """
        idle = [slot for slot in self._slots if not slot.busy]
        if not idle:
            return None
        most = len(tokens) - 1
        alike = [slot for slot in (self._slots if self._shares else idle) if slot.adapter == adapter]
        source, shared = self._longest(tokens, most, alike)
        parked, stored = self._stored(tokens, most, adapter)
        if self._shares and self._promised(tokens, most, alike) - max(shared, stored) >= WORTH_WAITING:
            return None
        if parked is not None and stored - shared >= LEAST:
            slot = self._fetch(idle, parked, stored)
        else:
            slot = self._place(idle, source, shared)
        self._tidy(slot)
        self._touch(slot)
        if source is not None:
            source.used = self._clock
        slot.busy, slot.tokens, slot.adapter = True, tokens, adapter
        return slot

    def release(self, slot: Slot) -> None:
        """Give a slot back; what it has computed stays for prompts to come."""
        slot.tokens = slot.tokens[: slot.computed]
        slot.busy = False
        self._touch(slot)
        self._forget_least_used()

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

    def kept(self) -> Iterator[Kept]:
        """Yield what idle slots hold, the most recently used first, and then what the attic does.

        For the end of a life: each must be done with before the next is asked for, which may take its slot.
        """
        held = sorted((slot for slot in self._slots if not slot.busy and slot.computed), key=lambda slot: -slot.used)
        for slot in held:
            yield Kept(slot.id, slot.tokens[: slot.computed], slot.adapter)
        for parked in self._attic or ():
            idle = next((slot for slot in self._slots if not slot.busy), None)
            if idle is None or self._attic is None:
                return
            self.drop(idle)
            if self._attic.fetch(parked, idle.id):
                self.fill(idle.id, parked.tokens, parked.adapter)
                yield Kept(idle.id, parked.tokens, parked.adapter)

    def reserve(self, count: int) -> int | None:
        """Return an empty slot that may be filled with so many tokens, or None where there is no room for them."""
        held = sum(slot.computed for slot in self._slots)
        if self._keep_most is not None and held + count > self._keep_most:
            return None
        return next((slot.id for slot in self._slots if not slot.busy and not slot.computed), None)

    def fill(self, id_: int, tokens: list[int], adapter: str | None) -> None:
        """Note that memory holds these tokens for an empty slot."""
        slot = self._slots[id_]
        slot.tokens, slot.computed, slot.adapter, slot.used = tokens, len(tokens), adapter, 0

    def _touch(self, slot: Slot) -> None:
        self._clock += 1
        slot.used = self._clock

    def _forget_least_used(self) -> None:
        """Drop what idle slots keep beyond the budget, the least recently used first, and of the last only its end."""
        if self._keep_most is None:
            return
        kept = sorted((slot for slot in self._slots if not slot.busy and slot.computed), key=lambda one: one.used)
        excess = sum(slot.computed for slot in kept) - self._keep_most
        for slot in kept:
            if excess <= 0:
                return
            left = slot.computed - excess
            excess -= slot.computed
            if left > 0 and self._memory.cut(slot.id, left):
                slot.computed = left
                slot.tokens = slot.tokens[:left]
            else:
                self.drop(slot)

    def _longest(self, tokens: list[int], most: int, among: list[Slot]) -> tuple[Slot | None, int]:
        if not self._reuse:
            return None, 0
        lengths = [(common_prefix(slot.tokens, tokens, min(most, slot.computed)), slot) for slot in among]
        length, slot = max(lengths, key=lambda pair: (pair[0], not pair[1].busy), default=(0, None))
        return (slot, length) if length else (None, 0)

    def _promised(self, tokens: list[int], most: int, among: list[Slot]) -> int:
        """Return the longest prefix that busy slots share with `tokens` once they are through their prompts."""
        return max((common_prefix(slot.tokens, tokens, most) for slot in among if slot.busy), default=0)

    def _place(self, idle: list[Slot], source: Slot | None, shared: int) -> Slot:
        """Bring the shared tokens into one of the idle slots and return it."""
        if source is not None and not source.busy and (not self._shares or shared * 2 >= source.computed):
            self._keep(source, shared)
            return source
        slot = min(idle, key=lambda one: (one.computed > 0, one.used))
        if slot is source:
            self._keep(slot, shared)
            return slot
        self._clear(slot)
        if source is not None:
            self._memory.copy(source.id, slot.id, shared)
            slot.computed = shared
        return slot

    def _stored(self, tokens: list[int], most: int, adapter: str | None) -> tuple[SavedSequence | None, int]:
        """Return the longest prefix in the attic."""
        best: tuple[SavedSequence | None, int] = (None, 0)
        for parked in self._attic or ():
            if parked.adapter == adapter:
                length = common_prefix(parked.tokens, tokens, most)
                best = max(best, (parked, length), key=lambda pair: pair[1])
        return best

    def _fetch(self, idle: list[Slot], parked: SavedSequence, length: int) -> Slot:
        """Bring the first `length` tokens of something from the attic into one of the idle slots and return it."""
        assert self._attic is not None
        slot = min(idle, key=lambda one: (one.computed > 0, one.used))
        self._clear(slot)
        if self._attic.fetch(parked, slot.id):
            slot.tokens, slot.computed = parked.tokens, len(parked.tokens)
            self._keep(slot, length)
        return slot

    def _tidy(self, taken: Slot) -> None:
        """Clear the other idle slots: what they hold would slow down every step from now on."""
        if self._attic is not None:
            for slot in self._slots:
                if slot is not taken and not slot.busy and slot.computed:
                    self._clear(slot)

    def _clear(self, slot: Slot) -> None:
        """Empty an idle slot, into the attic if there is one."""
        if self._attic is not None and slot.computed:
            self._attic.put(slot.id, slot.tokens[: slot.computed], slot.adapter)
        self.drop(slot)

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
