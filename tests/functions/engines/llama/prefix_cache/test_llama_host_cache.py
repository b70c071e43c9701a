"""The attic: what idle slots held comes back as it was, within its bytes, and nobody else's steps pay for it."""

from __future__ import annotations

import pytest
import walks
from hypothesis import given
from hypothesis import strategies as st
from test_llama_slots import SYSTEM, Cells, take

from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.prefix_cache.host_cache import LEAST, HostCache
from functions.engines.llama.prefix_cache.slots import Slot, Slots

PER_TOKEN = 10


class Storing(Cells):
    """A memory that can be copied out and in; a state is as long as its bytes would be."""

    def save(self, sequence: int) -> list[int]:
        return [token for token in self.held[sequence] for _ in range(PER_TOKEN)]

    def restore(self, sequence: int, state: list[int]) -> bool:
        assert not self.held.get(sequence), "only into empty sequences"
        self.held[sequence] = state[::PER_TOKEN]
        return True


def begin(slots: Slots, memory: Storing, tokens: list[int], adapter: str | None = None) -> Slot:
    slot = slots.take(tokens, adapter)
    assert slot is not None
    memory.compute(slot)
    return slot


def made(tokens: int = 1000, count: int = 3) -> tuple[Storing, HostCache, Slots]:
    memory = Storing()
    attic = HostCache(memory, tokens * PER_TOKEN)
    return memory, attic, Slots(count, memory, attic=attic)


def test_idle_slots_are_empty_once_somebody_else_begins() -> None:
    memory, attic, slots = made()
    slots.release(begin(slots, memory, [*SYSTEM, 1]))
    other = begin(slots, memory, [7, 8, 9])
    assert sum(map(bool, memory.held.values())) == 1
    assert [one.tokens for one in attic] == [[*SYSTEM, 1]]
    back = take(slots, [*SYSTEM, 1, 2])
    assert back.computed == 101 and back is not other
    memory.compute(back)


def test_part_of_what_is_stored_is_used_and_all_of_it_stays() -> None:
    memory, attic, slots = made()
    slots.release(begin(slots, memory, [*SYSTEM, 1, 2, 3]))
    begin(slots, memory, [7])
    one, two = take(slots, [*SYSTEM[:60], 5]), [one.tokens for one in attic]
    assert one.computed == 60 and two == [[*SYSTEM, 1, 2, 3]]
    memory.compute(one)


def test_a_conversation_that_goes_on_replaces_its_beginning() -> None:
    memory, attic, slots = made()
    slots.release(begin(slots, memory, SYSTEM))
    begin(slots, memory, [7])
    slots.release(begin(slots, memory, [*SYSTEM, 1, 2]))
    begin(slots, memory, [8])
    assert [one.tokens for one in attic] == [[*SYSTEM, 1, 2]]


def test_the_least_recently_used_goes_first() -> None:
    memory, attic, slots = made(tokens=120)
    for start in (0, 1000, 2000):
        slots.release(begin(slots, memory, list(range(start, start + 50))))
    slots.release(begin(slots, memory, [7]))
    assert [one.tokens[0] for one in attic] == [2000, 1000]


def test_short_prefixes_are_not_worth_it() -> None:
    memory, attic, slots = made()
    slots.release(begin(slots, memory, list(range(LEAST - 1))))
    begin(slots, memory, [777])
    assert not list(attic)


def test_adapters_are_kept_apart() -> None:
    memory, attic, slots = made()
    slots.release(begin(slots, memory, [*SYSTEM, 1], "poet"))
    begin(slots, memory, [7])
    assert take(slots, [*SYSTEM, 2]).computed == 0
    assert len(list(attic)) == 1


def test_all_of_it_comes_down_to_be_kept() -> None:
    memory, _, slots = made()
    for start in (0, 1000):
        slots.release(begin(slots, memory, list(range(start, start + 50))))
    assert [one.tokens[0] for one in slots.kept()] == [1000, 0]
    assert sorted(held[0] for held in memory.held.values() if held) == [0, 1000]


@pytest.mark.soak
@walks.examples(100, 3000)
@given(st.data(), st.integers(0, 400), st.booleans())
def test_memory_is_what_slots_say_and_the_attic_keeps_its_bound(data: st.DataObject, bound: int, shares: bool) -> None:
    memory = Storing(cuts=shares or data.draw(st.booleans()))
    attic = HostCache(memory, bound * PER_TOKEN)
    slots = Slots(3, memory, shares=shares, attic=attic)
    busy: list[Slot] = []
    for _ in range(data.draw(st.integers(1, 25))):
        if busy and data.draw(st.booleans()):
            slots.release(busy.pop(data.draw(st.integers(0, len(busy) - 1))))
        prompt = [1] * data.draw(st.integers(0, 90)) + data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=6))
        slot = slots.take(list(prompt))
        if slot is not None:
            busy.append(slot)
            memory.compute(slot)
        for one in slots._slots:
            assert memory.held.get(one.id, []) == one.tokens[: one.computed]
        for parked in attic:
            assert parked.state[::PER_TOKEN] == parked.tokens
        assert sum(one.size for one in attic) <= bound * PER_TOKEN


@pytest.mark.parametrize("shared", [10, 60])
def test_a_real_context_goes_on_from_a_copy(model: Model, shared: int) -> None:
    context = Context.open(model, LlamaOptions(), Target(), context=256, slots=2, threads=2)
    tokens = model.vocabulary.prompt("The capital of France is the city of Paris, and that of Italy is " * 5)[:61]

    def logits(slot: int, start: int) -> bytes:
        context.begin()
        index = context.add(slot, tokens[start:], start, output=1)
        assert context.compute() == 0
        return bytes(context.logits(index).argmax().tobytes())

    try:
        expected = logits(0, 0)
        context.cut(0, shared)
        state = context.save(0)
        assert state is not None and len(state) > 1000
        context.forget(0)
        assert context.restore(1, state) and context.length(1) == shared
        assert logits(1, shared) == expected
        assert not context.restore(0, state[: len(state) // 2]) and context.length(0) == 0
        assert context.save(0) is None or context.length(0) == 0
    finally:
        context.close()
