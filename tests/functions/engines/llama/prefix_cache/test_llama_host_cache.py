"""The host cache: saved prefixes are restored unchanged, within the limit on bytes."""

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
from functions.engines.llama.prefix_cache.host_cache import MIN_TOKENS, HostCache
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
    host_cache = HostCache(memory, tokens * PER_TOKEN)
    return memory, host_cache, Slots(count, memory, host_cache=host_cache)


def test_idle_slots_are_cleared_once_another_request_starts() -> None:
    memory, host_cache, slots = made()
    slots.release(begin(slots, memory, [*SYSTEM, 1]))
    other = begin(slots, memory, [7, 8, 9])
    assert sum(map(bool, memory.held.values())) == 1
    assert [one.tokens for one in host_cache] == [[*SYSTEM, 1]]
    back = take(slots, [*SYSTEM, 1, 2])
    assert back.computed == 101 and back is not other
    memory.compute(back)


def test_part_of_a_saved_prefix_is_used_and_all_of_it_stays() -> None:
    memory, host_cache, slots = made()
    slots.release(begin(slots, memory, [*SYSTEM, 1, 2, 3]))
    begin(slots, memory, [7])
    one, two = take(slots, [*SYSTEM[:60], 5]), [one.tokens for one in host_cache]
    assert one.computed == 60 and two == [[*SYSTEM, 1, 2, 3]]
    memory.compute(one)


def test_a_continued_conversation_replaces_its_shorter_prefix() -> None:
    memory, host_cache, slots = made()
    slots.release(begin(slots, memory, SYSTEM))
    begin(slots, memory, [7])
    slots.release(begin(slots, memory, [*SYSTEM, 1, 2]))
    begin(slots, memory, [8])
    assert [one.tokens for one in host_cache] == [[*SYSTEM, 1, 2]]


def test_the_least_recently_used_goes_first() -> None:
    memory, host_cache, slots = made(tokens=120)
    for start in (0, 1000, 2000):
        slots.release(begin(slots, memory, list(range(start, start + 50))))
    slots.release(begin(slots, memory, [7]))
    assert [one.tokens[0] for one in host_cache] == [2000, 1000]


def test_short_prefixes_are_not_saved() -> None:
    memory, host_cache, slots = made()
    slots.release(begin(slots, memory, list(range(MIN_TOKENS - 1))))
    begin(slots, memory, [777])
    assert not list(host_cache)


def test_adapters_are_kept_apart() -> None:
    memory, host_cache, slots = made()
    slots.release(begin(slots, memory, [*SYSTEM, 1], "poet"))
    begin(slots, memory, [7])
    assert take(slots, [*SYSTEM, 2]).computed == 0
    assert len(list(host_cache)) == 1


def test_all_saved_prefixes_are_yielded_at_shutdown() -> None:
    memory, _, slots = made()
    for start in (0, 1000):
        slots.release(begin(slots, memory, list(range(start, start + 50))))
    assert [one.tokens[0] for one in slots.idle_prefixes()] == [1000, 0]
    assert sorted(held[0] for held in memory.held.values() if held) == [0, 1000]


@pytest.mark.soak
@walks.examples(100, 3000)
@given(st.data(), st.integers(0, 400), st.booleans())
def test_the_kv_cache_matches_the_slots_and_the_host_cache_its_limit(
    data: st.DataObject, bound: int, shares: bool
) -> None:
    memory = Storing(cuts=shares or data.draw(st.booleans()))
    host_cache = HostCache(memory, bound * PER_TOKEN)
    slots = Slots(3, memory, shares=shares, host_cache=host_cache)
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
        for saved in host_cache:
            assert saved.state[::PER_TOKEN] == saved.tokens
        assert sum(one.size for one in host_cache) <= bound * PER_TOKEN


@pytest.mark.parametrize("shared", [10, 60])
def test_a_real_context_continues_from_a_restored_state(model: Model, shared: int) -> None:
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
