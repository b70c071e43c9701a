"""The longest common prefix of token lists of any length and type."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.engines.prefix_cache.common_prefix import common_prefix


@given(st.lists(st.integers(0, 2), max_size=700), st.lists(st.integers(0, 2), max_size=700), st.integers(0, 800))
def test_common_prefix(one: list[int], other: list[int], most: int) -> None:
    expected = 0
    while expected < min(len(one), len(other), most) and one[expected] == other[expected]:
        expected += 1
    assert common_prefix(one, other, most) == expected


@given(st.integers(0, 600), st.integers(0, 700))
def test_common_prefix_of_long_equal_beginnings(length: int, most: int) -> None:
    one = list(range(length))
    assert common_prefix([*one, -1], [*one, -2], most) == min(length, most)


@pytest.mark.parametrize(("one", "other", "count"), [([], [1], 0), ([1, 2], [1, 2, 3], 2), ([1, 2], [1, 3], 1)])
def test_common_prefix_is_symmetric_and_takes_any_sequence(one: list[int], other: list[int], count: int) -> None:
    assert common_prefix(one, other) == common_prefix(other, one) == count
    assert common_prefix(tuple(one), other) == common_prefix(array("i", one), other) == count


def test_items_without_equality_are_compared_by_identity() -> None:
    nodes = [object() for _ in range(600)]
    assert common_prefix(nodes, [*nodes[:500], object()]) == 500
