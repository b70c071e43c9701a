"""Slots share prefixes, and the KV cache always holds what they record, for any order of requests."""

from __future__ import annotations

import pytest
import walks
from hypothesis import given
from hypothesis import strategies as st

from functions.engines.llama.prefix_cache.slots import WORTH_WAITING, Slot, Slots


class Cells:
    """A memory that holds the tokens themselves; like llama.cpp's, it may be unable to cut, or see a window only."""

    def __init__(self, cuts: bool = True) -> None:
        self.held: dict[int, list[int]] = {}
        self.lowest: dict[int, int] = {}
        self.cuts = cuts
        self.copies = 0

    def first(self, sequence: int) -> int:
        return self.lowest.get(sequence, 0) if self.held.get(sequence) else -1

    def cut(self, sequence: int, length: int) -> bool:
        held = self.held.get(sequence, [])
        if not self.cuts and length < len(held):
            return False
        del held[length:]
        return True

    def forget(self, sequence: int) -> None:
        self.held[sequence] = []

    def copy(self, source: int, target: int, length: int) -> None:
        assert not self.held.get(target)
        self.held[target] = self.held[source][:length]
        self.copies += 1

    def compute(self, slot: Slot, count: int | None = None) -> None:
        end = len(slot.tokens) if count is None else slot.computed + count
        assert self.held.setdefault(slot.id, []) == slot.tokens[: slot.computed]
        self.held[slot.id].extend(slot.tokens[slot.computed : end])
        slot.computed = end


def take(slots: Slots, tokens: list[int]) -> Slot:
    slot = slots.take(tokens)
    assert slot is not None
    return slot


SYSTEM = list(range(100, 200))


def test_the_same_prompt_again_computes_only_its_last_token() -> None:
    memory = Cells()
    slots = Slots(2, memory)
    slot = take(slots, [*SYSTEM, 1])
    memory.compute(slot)
    slots.release(slot)
    again = take(slots, [*SYSTEM, 1])
    assert (again.id, again.computed) == (slot.id, 100)


def test_a_busy_slots_prefix_is_copied() -> None:
    memory = Cells()
    slots = Slots(2, memory)
    memory.compute(take(slots, [*SYSTEM, 1]))
    other = take(slots, [*SYSTEM, 2, 3])
    assert (other.computed, memory.copies) == (100, 1)
    memory.compute(other)


def test_a_long_conversation_is_not_cut_for_a_short_one() -> None:
    memory = Cells()
    slots = Slots(2, memory)
    long = take(slots, SYSTEM + list(range(1000, 1400)))
    memory.compute(long)
    slots.release(long)
    short = take(slots, [*SYSTEM, 7])
    assert short is not long and short.computed == 100
    assert long.computed == 500


def test_a_request_waits_for_a_prompt_in_progress() -> None:
    memory = Cells()
    slots = Slots(3, memory)
    first = take(slots, [*SYSTEM, 1])
    assert slots.take([*SYSTEM, 2]) is None
    assert take(slots, [5, 6, 7]).computed == 0, "others pass"
    memory.compute(first, 60)
    assert slots.take([*SYSTEM, 2]) is None
    memory.compute(first, 100 - WORTH_WAITING + 1 - 60)
    assert take(slots, [*SYSTEM, 2]).computed == 100 - WORTH_WAITING + 1


def test_no_slot_while_all_are_busy() -> None:
    slots = Slots(1, Cells())
    slot = take(slots, [1, 2])
    assert slots.take([3]) is None and slots.free == 0
    slots.release(slot)
    assert slots.free == 1


def test_the_least_recently_used_slot_is_taken_first() -> None:
    memory = Cells()
    slots = Slots(3, memory)
    kept = []
    for start in (0, 1000, 2000):
        slot = take(slots, list(range(start, start + 10)))
        memory.compute(slot)
        kept.append(slot)
    for slot in (kept[2], kept[0], kept[1]):
        slots.release(slot)
    assert take(slots, [9999]) is kept[2], "given back first of all"


def test_memory_that_cannot_be_cut_is_recomputed() -> None:
    memory = Cells(cuts=False)
    slots = Slots(2, memory, shares=False)
    slot = take(slots, [1, 2, 3, 4])
    memory.compute(slot)
    slots.release(slot)
    continued = take(slots, [1, 2, 3, 4, 5])
    assert (continued.id, continued.computed) == (slot.id, 4), "going on needs no cut"
    memory.compute(continued)
    slots.release(continued)
    other = take(slots, [1, 2, 9])
    assert other.computed == 0
    memory.compute(other)


def test_a_window_that_has_moved_on_is_recomputed() -> None:
    memory = Cells()
    slots = Slots(1, memory, shares=False, window=8)
    slot = take(slots, list(range(50)))
    memory.compute(slot)
    slots.release(slot)
    memory.lowest[slot.id] = 42
    assert take(slots, [*range(49), 777]).computed == 0, "positions 41 to 49 are asked for, 42 is the first there"
    memory.compute(slot)
    slots.release(slot)
    memory.lowest[slot.id] = 40
    assert take(slots, [*range(49), 888]).computed == 49


def test_without_reuse_everything_is_computed() -> None:
    memory = Cells()
    slots = Slots(1, memory, reuse=False)
    slot = take(slots, [*SYSTEM, 1])
    memory.compute(slot)
    slots.release(slot)
    assert take(slots, [*SYSTEM, 1]).computed == 0
    memory.compute(slot)


def test_dropping_idle_slots() -> None:
    memory = Cells()
    slots = Slots(2, memory)
    slot, busy = take(slots, [1, 2, 3]), take(slots, [4, 5])
    memory.compute(slot)
    memory.compute(busy)
    slots.release(slot)
    assert slots.drop_idle()
    assert (memory.held[slot.id], busy.computed) == ([], 2)
    assert not slots.drop_idle()


@pytest.mark.soak
@walks.examples(100, 3000)
@given(st.data(), st.booleans(), st.booleans())
def test_the_kv_cache_always_matches_the_slots(data: st.DataObject, shares: bool, cuts: bool) -> None:
    memory = Cells(cuts or shares)
    slots = Slots(3, memory, shares=shares)
    busy: list[Slot] = []
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["take", "compute", "generate", "release", "drop"]))
        if action == "take":
            prompt = [1] * data.draw(st.integers(0, 40)) + data.draw(
                st.lists(st.integers(0, 2), min_size=1, max_size=6)
            )
            slot = slots.take(list(prompt))
            if slot is not None:
                assert slot.tokens == prompt and slot.computed < len(prompt)
                busy.append(slot)
            elif not shares:
                assert len(busy) == 3
        elif busy:
            slot = busy[data.draw(st.integers(0, len(busy) - 1))]
            left = len(slot.tokens) - slot.computed
            if action == "compute":
                memory.compute(slot, data.draw(st.integers(0, left)))
            elif action == "generate" and left == 0:
                slot.tokens.append(data.draw(st.integers(0, 2)))
            elif action == "release":
                busy.remove(slot)
                slots.release(slot)
            elif action == "drop":
                slots.drop(slot)
        for slot in slots._slots:
            assert memory.held.get(slot.id, []) == slot.tokens[: slot.computed]


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_every_slot_has_its_own_id(slots: int) -> None:
    made = Slots(slots, Cells())
    assert {take(made, [index]).id for index in range(slots)} == set(range(slots))
