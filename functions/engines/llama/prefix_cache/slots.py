"""Slots: the sequences of a context, and the prompt tokens that each has in the KV cache.

A new prompt takes over, or copies, the slot with the longest common prefix. Idle slots keep their tokens, within a
limit, until the least recently used are evicted or moved to the host cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from functions.engines.llama.prefix_cache.host_cache import MIN_TOKENS, HostCache, SavedSequence
from functions.engines.llama.prefix_cache.sequence_memory import SequenceMemory
from functions.engines.prefix_cache.common_prefix import common_prefix
from functions.engines.prefix_cache.prefix_index import PrefixIndex, longest_prefix

WORTH_WAITING = 32
"""A request waits for a prompt in progress that will save it at least so many tokens, instead of computing them too."""


class Slot:
    """One sequence: its tokens, and how many of them, from the start, are computed."""

    __slots__ = ("adapter", "busy", "computed", "id", "tokens")

    def __init__(self, id_: int) -> None:
        self.id = id_
        self.tokens: list[int] = []
        self.computed = 0
        self.busy = False
        self.adapter: str | None = None
        """The adapter it was computed with: the state of the same tokens differs between adapters."""

    @property
    def cached(self) -> int:
        """Number of tokens in the KV cache."""
        return self.computed

    @property
    def size(self) -> int:
        """Number of tokens in the KV cache."""
        return self.computed


class IdlePrefix(NamedTuple):
    """The tokens of an idle slot."""

    slot: int
    tokens: list[int]
    adapter: str | None


class Slots:
    """All slots of one context."""

    def __init__(
        self,
        count: int,
        memory: SequenceMemory,
        *,
        reuse: bool = True,
        shares: bool = True,
        window: int = 0,
        max_idle_tokens: int | None = None,
        host_cache: HostCache | None = None,
    ) -> None:
        """Make `count` empty slots.

        `reuse` looks for common prefixes. `shares` lets sequences share KV cells: False for models that keep one state,
        or a sliding window of `window` tokens, per sequence. `max_idle_tokens` limits what idle slots keep in all.
        `host_cache` takes what idle slots hold when another request starts.
        """
        self._slots = [Slot(index) for index in range(count)]
        self._memory = memory
        self._reuse = reuse
        self._shares = shares and reuse
        self._window = window
        self._max_idle_tokens = max_idle_tokens
        self._host_cache = host_cache if reuse else None
        self._lru = PrefixIndex(self._slots)

    @property
    def free(self) -> int:
        """How many slots are idle."""
        return sum(not slot.busy for slot in self._slots)

    def take(self, tokens: list[int], adapter: str | None = None) -> Slot | None:
        """Return a slot with the longest cached prefix of `tokens`, or None if the request has to wait.

        `slot.computed` tokens are in the KV cache; at least the last token is left to compute, for its logits. A
        request waits while all slots are busy, and while one of them computes a prefix that it needs too.
        """
        idle = [slot for slot in self._slots if not slot.busy]
        if not idle:
            return None
        most = len(tokens) - 1
        alike = [slot for slot in (self._slots if self._shares else idle) if slot.adapter == adapter]
        source, shared = self._longest(tokens, most, alike)
        saved, restorable = self._longest_saved(tokens, most, adapter)
        if self._shares and self._in_progress(tokens, most, alike) - max(shared, restorable) >= WORTH_WAITING:
            return None
        if saved is not None and restorable - shared >= MIN_TOKENS:
            slot = self._restore(saved, restorable)
        else:
            slot = self._place(source, shared)
        self._clear_idle(slot)
        if source is not None:
            self._lru.use(source)
        self._lru.use(slot)
        slot.busy, slot.tokens, slot.adapter = True, tokens, adapter
        return slot

    def release(self, slot: Slot) -> None:
        """Make a slot idle; its computed tokens stay cached."""
        slot.tokens = slot.tokens[: slot.computed]
        slot.busy = False
        self._lru.use(slot)
        self._evict()

    def drop(self, slot: Slot) -> None:
        """Drop a slot's cached tokens; a busy slot computes them again."""
        self._memory.forget(slot.id)
        slot.computed = 0
        if not slot.busy:
            slot.tokens = []

    def drop_idle(self) -> bool:
        """Drop the cached tokens of all idle slots; returns whether there were any."""
        idle = self._idle_cached(self._slots)
        for slot in idle:
            self.drop(slot)
        return bool(idle)

    def idle_prefixes(self) -> Iterator[IdlePrefix]:
        """Yield the cached prefixes of idle slots, the most recently used first, then those of the host cache.

        For shutdown: prefixes of the host cache are restored into idle slots one by one, so each has to be processed
        before the next is requested.
        """
        for slot in self._idle_cached(reversed(self._lru)):
            yield IdlePrefix(slot.id, slot.tokens[: slot.computed], slot.adapter)
        for saved in self._host_cache or ():
            idle = next((slot for slot in self._slots if not slot.busy), None)
            if idle is None or self._host_cache is None:
                return
            self.drop(idle)
            if self._host_cache.restore(saved, idle.id):
                self.fill(idle.id, saved.tokens, saved.adapter)
                yield IdlePrefix(idle.id, saved.tokens, saved.adapter)

    def reserve(self, count: int) -> int | None:
        """Return the id of an empty slot that may be filled with `count` tokens, or None if the limit forbids it."""
        if self._max_idle_tokens is not None and self._lru.size + count > self._max_idle_tokens:
            return None
        return next((slot.id for slot in self._slots if not slot.busy and not slot.computed), None)

    def fill(self, id_: int, tokens: list[int], adapter: str | None) -> None:
        """Record that the KV cache now holds these tokens for an empty slot."""
        slot = self._slots[id_]
        slot.tokens, slot.computed, slot.adapter = tokens, len(tokens), adapter

    def _idle_cached(self, slots: Iterable[Slot]) -> list[Slot]:
        """Return the idle slots among `slots` that have cached tokens."""
        return [slot for slot in slots if not slot.busy and slot.computed]

    def _next_idle(self) -> Slot:
        """Return an empty idle slot, else the least recently used one."""
        return min((slot for slot in self._lru if not slot.busy), key=lambda slot: slot.computed > 0)

    def _evict(self) -> None:
        """Drop what idle slots keep beyond the limit, the least recently used first; the last is only shortened."""
        if self._max_idle_tokens is None:
            return
        idle = self._idle_cached(self._lru)
        excess = sum(slot.computed for slot in idle) - self._max_idle_tokens
        for slot in idle:
            if excess <= 0:
                return
            left = slot.computed - excess
            excess -= slot.computed
            if left > 0 and self._memory.cut(slot.id, left):
                slot.computed = left
                slot.tokens = slot.tokens[:left]
            else:
                self.drop(slot)

    def _longest(self, tokens: list[int], most: int, slots: list[Slot]) -> tuple[Slot | None, int]:
        """Return the slot with the longest cached prefix, an idle one if there is a choice."""
        if not self._reuse:
            return None, 0
        return longest_prefix(sorted(slots, key=lambda slot: slot.busy), tokens, most)

    def _longest_saved(self, tokens: list[int], most: int, adapter: str | None) -> tuple[SavedSequence | None, int]:
        """Return the longest prefix in the host cache."""
        return longest_prefix((saved for saved in self._host_cache or () if saved.adapter == adapter), tokens, most)

    def _in_progress(self, tokens: list[int], most: int, slots: list[Slot]) -> int:
        """Return the longest prefix that busy slots will share with `tokens` once their prompts are computed."""
        return max((common_prefix(slot.tokens, tokens, most) for slot in slots if slot.busy), default=0)

    def _place(self, source: Slot | None, shared: int) -> Slot:
        """Bring the first `shared` tokens of `source` into an idle slot and return it."""
        if source is not None and not source.busy and (not self._shares or shared * 2 >= source.computed):
            self._cut(source, shared)
            return source
        slot = self._next_idle()
        if slot is source:
            self._cut(slot, shared)
            return slot
        self._clear(slot)
        if source is not None:
            self._memory.copy(source.id, slot.id, shared)
            slot.computed = shared
        return slot

    def _restore(self, saved: SavedSequence, length: int) -> Slot:
        """Restore the first `length` tokens of a saved prefix into an idle slot and return it."""
        assert self._host_cache is not None
        slot = self._next_idle()
        self._clear(slot)
        if self._host_cache.restore(saved, slot.id):
            slot.tokens, slot.computed = saved.tokens, len(saved.tokens)
            self._cut(slot, length)
        return slot

    def _clear_idle(self, taken: Slot) -> None:
        """Move what other idle slots hold to the host cache: in the KV cache it would slow down every step."""
        if self._host_cache is not None:
            for slot in self._idle_cached(self._slots):
                if slot is not taken:
                    self._clear(slot)

    def _clear(self, slot: Slot) -> None:
        """Empty an idle slot; its tokens go to the host cache if there is one."""
        if self._host_cache is not None and slot.computed:
            self._host_cache.put(slot.id, slot.tokens[: slot.computed], slot.adapter)
        self.drop(slot)

    def _cut(self, slot: Slot, length: int) -> None:
        """Shorten a slot's cached tokens to `length`, or to none where its memory cannot be cut there."""
        out_of_window = self._window and self._memory.first(slot.id) > max(0, length - self._window)
        if out_of_window or not self._memory.cut(slot.id, length):
            self._memory.forget(slot.id)
            length = 0
        slot.computed = length
