"""Which items make the next batch: order, budget, padding, turns."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import walks

from functions.engines.batching.schedule import Job, Schedule


def job(schedule: Schedule[Any, Any], lengths: list[int], name: str = "") -> Job[Any, Any]:
    made: Job[Any, Any] = Job(len(lengths), lambda error: None)
    schedule.add(made, [(f"{name}{at}", length) for at, length in enumerate(lengths)])
    return made


def lengths(batch: list[Any]) -> list[int]:
    return [entry.length for entry in batch]


def drained(schedule: Schedule[Any, Any]) -> list[list[Any]]:
    found = []
    while batch := schedule.take():
        found.append(batch)
    return found


def test_nothing_waits() -> None:
    assert Schedule(100, 10).take() == []


@pytest.mark.parametrize(
    ("given", "budget", "overhead", "batches"),
    [
        ([5, 9, 7], 100, 100, [[9, 7, 5]]),
        ([10, 10, 10, 10], 20, 0, [[10, 10], [10, 10]]),
        ([10, 10, 10], 25, 0, [[10, 10], [10]]),
        ([50], 20, 0, [[50]]),
        ([50, 3, 3], 20, 100, [[50], [3, 3]]),
        ([200, 50, 10], 10_000, 32, [[200], [50], [10]]),
        ([200, 190, 180, 10], 10_000, 32, [[200, 190, 180], [10]]),
        ([200, 190, 180, 10], 10_000, 1_000, [[200, 190, 180, 10]]),
        ([3, 2, 1], 100, 0, [[3], [2], [1]]),
    ],
)
def test_batches_of_one_request(given: list[int], budget: int, overhead: int, batches: list[list[int]]) -> None:
    schedule: Schedule[Any, Any] = Schedule(budget, overhead)
    job(schedule, given)
    assert [lengths(batch) for batch in drained(schedule)] == batches


def test_a_leader_is_joined_by_shorter_and_by_longer_ones() -> None:
    schedule: Schedule[Any, Any] = Schedule(1_000, 10)
    job(schedule, [50], "a")
    job(schedule, [52], "b")
    job(schedule, [49], "c")
    job(schedule, [90], "d")
    assert [lengths(batch) for batch in drained(schedule)] == [[52, 50, 49], [90]]


def test_a_short_request_is_in_the_next_batch() -> None:
    schedule: Schedule[Any, Any] = Schedule(256, 8)
    big = job(schedule, [128] * 50)
    for _ in range(3):
        assert all(entry.job is big for entry in schedule.take())
    small = job(schedule, [5, 5])
    assert [entry.job for entry in schedule.take()] == [small, small]


def test_the_oldest_is_served_every_second_time_however_many_short_ones_come() -> None:
    schedule: Schedule[Any, Any] = Schedule(256, 0)
    big = job(schedule, [128] * 20)
    led = []
    for at in range(20):
        job(schedule, [5 + at])
        led.append(schedule.take()[0].job is big)
    assert sum(led) >= 9
    assert not any(a and b for a, b in itertools.pairwise(led))


def test_a_short_one_among_many_big_ones_waits_two_batches_at_most() -> None:
    schedule: Schedule[Any, Any] = Schedule(256, 0)
    for at in range(8):
        job(schedule, [100 + at] * 30)
    for _ in range(5):
        schedule.take()
    small = job(schedule, [3])
    assert any(entry.job is small for _ in range(2) for entry in schedule.take())


def test_dropping_forgets_what_waits() -> None:
    schedule: Schedule[Any, Any] = Schedule(20, 0)
    gone, stays = job(schedule, [10] * 6), job(schedule, [10] * 2)
    schedule.take()
    schedule.drop(gone)
    schedule.drop(gone)
    assert {entry.job for batch in drained(schedule) for entry in batch} == {stays}
    assert len(schedule) == 0
    assert schedule.jobs() == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", walks.seeds(8, 100))
def test_every_item_is_taken_once_and_within_bounds(seed: int) -> None:
    rng = random.Random(seed)
    budget, overhead = rng.choice([64, 256, 2048]), rng.choice([0, 32, 300])
    schedule: Schedule[Any, Any] = Schedule(budget, overhead)
    expected, found = [], []
    for name in "abcdefgh":
        sizes = [rng.randint(1, 300) for _ in range(rng.randint(1, 40))]
        job(schedule, sizes, name)
        expected += [f"{name}{at}" for at in range(len(sizes))]
        for batch in [schedule.take() for _ in range(rng.randint(0, 3))] + (drained(schedule) if name == "h" else []):
            found += [entry.item for entry in batch]
            longest = max(lengths(batch), default=0)
            assert lengths(batch) == sorted(lengths(batch), reverse=True)
            assert len(batch) == 1 or len(batch) * longest <= budget
            assert len(batch) * longest - sum(lengths(batch)) <= overhead
    assert sorted(found) == sorted(expected)
    assert len(schedule) == 0


@pytest.mark.parametrize(
    ("given", "budget", "most", "batches"),
    [
        ([200, 50, 10], 300, 9, [[200, 50, 10]]),
        ([200, 190, 180, 10], 400, 9, [[200, 190], [180, 10]]),
        ([500, 3], 300, 9, [[500], [3]]),
        ([5] * 5, 300, 2, [[5, 5], [5, 5], [5]]),
    ],
)
def test_engines_that_pad_nothing_fill_their_budget(
    given: list[int], budget: int, most: int, batches: list[list[int]]
) -> None:
    schedule: Schedule[Any, Any] = Schedule(budget, None, most)
    job(schedule, given)
    assert [lengths(batch) for batch in drained(schedule)] == batches


def test_a_leader_in_the_middle_is_joined_from_both_sides_without_padding() -> None:
    schedule: Schedule[Any, Any] = Schedule(200, None)
    job(schedule, [50], "a")
    job(schedule, [90, 60, 10], "b")
    assert [lengths(batch) for batch in drained(schedule)] == [[60, 50, 10], [90]]
