"""The index of cached prefixes: lookup of the longest, order of use, and eviction."""

from __future__ import annotations

import random

import pytest

from functions.engines.prefix_cache.common_prefix import common_prefix
from functions.engines.prefix_cache.prefix_index import PrefixIndex, longest_prefix


class Entry:
    def __init__(self, tokens: list[int], cached: int | None = None, size: int | None = None) -> None:
        self.tokens = tokens
        self.cached = len(tokens) if cached is None else cached
        self.size = self.cached if size is None else size


def test_the_longest_prefix_is_found_and_of_equals_the_one_used_last() -> None:
    one, two, three = Entry([1, 2, 3]), Entry([1, 2, 4]), Entry([9])
    index = PrefixIndex([one, two, three])
    assert index.longest([1, 2, 3, 5]) == (one, 3)
    assert index.longest([1, 2, 7]) == (two, 2)
    index.use(one)
    assert index.longest([1, 2, 7]) == (one, 2)
    assert index.longest([7]) == (None, 0) == index.longest([])


def test_only_cached_tokens_count_and_none_beyond_the_limit() -> None:
    entry = Entry([1, 2, 3, 4], cached=2)
    assert longest_prefix([entry], [1, 2, 3]) == (entry, 2)
    assert longest_prefix([entry], [1, 2, 3], 1) == (entry, 1)
    assert longest_prefix([entry], [1, 2, 3], 0) == (None, 0)


def test_eviction_starts_with_the_least_recently_used_and_spares_one() -> None:
    one, two, three = (Entry([number], size=10) for number in range(3))
    index = PrefixIndex([one, two, three])
    assert index.evict(30) == [] and index.size == 30
    index.use(one)
    assert index.evict(20) == [two] and two not in index
    assert index.evict(5, keep=three) == [one] and list(index) == [three]
    assert index.evict(5) == [three] and len(index) == 0
    index.remove(three)
    index.use(one)
    index.clear()
    assert list(reversed(index)) == []


@pytest.mark.parametrize("seed", range(10))
def test_any_order_of_use_agrees_with_a_plain_search(seed: int) -> None:
    dice = random.Random(seed)
    index: PrefixIndex[Entry] = PrefixIndex()
    order: list[Entry] = []
    for _ in range(200):
        tokens = [dice.randrange(2) for _ in range(dice.randrange(1, 8))]
        found, length = index.longest(tokens)
        expected = max((common_prefix(entry.tokens, tokens) for entry in order), default=0)
        assert length == expected
        assert found is next((one for one in reversed(order) if common_prefix(one.tokens, tokens) == length > 0), None)
        entry = found if found is not None and dice.random() < 0.5 else Entry(tokens)
        order = [*(one for one in order if one is not entry), entry]
        index.use(entry)
        evicted = index.evict(30)
        assert evicted == order[: len(evicted)] and index.size <= 30
        order = order[len(evicted) :]
        assert list(index) == order
