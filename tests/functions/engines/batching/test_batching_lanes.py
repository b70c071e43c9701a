"""Several threads that compute side by side, and one for small requests: who computes what, and what stays in order."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from functions.engines.batching.batcher import Batcher
from functions.engines.batching.schedule import Job, Schedule
from host.errors import OutOfMemory, ShuttingDown

pytestmark = pytest.mark.anyio

WAIT = 60
LARGE = 90


class Machine:
    """Computes `item * 10`; batches with an item that is held stand still until they are let go."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.batches: list[list[int]] = []
        self.threads: list[int] = []
        self.inside = 0
        self.most = 0
        self.held: set[int] = set()
        self.failing: dict[int, Exception] = {}
        self.room = 1_000

    def __call__(self, items: Sequence[int]) -> list[int]:
        with self.changed:
            self.batches.append(list(items))
            self.threads.append(threading.get_ident())
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.changed.notify_all()
            try:
                assert self.changed.wait_for(lambda: not self.held.intersection(items), WAIT)
            finally:
                self.inside -= 1
        if len(items) > self.room:
            raise MemoryError
        for item in items:
            if item in self.failing:
                raise self.failing[item]
        return [item * 10 for item in items]

    def let_go(self, *items: int) -> None:
        with self.changed:
            self.held.difference_update(items or set(self.held))
            self.changed.notify_all()

    async def until(self, what: Callable[[], bool]) -> None:
        """Wait until something is so of what is being computed."""

        def wait() -> bool:
            with self.changed:
                return self.changed.wait_for(what, WAIT)

        assert await asyncio.to_thread(wait)


Maker = Callable[..., Batcher[int, int]]


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def maker(machine: Machine) -> Iterator[Maker]:
    made: list[Batcher[int, int]] = []

    def make(**settings: Any) -> Batcher[int, int]:
        settings = {"budget": 100, "overhead": 1_000, "lanes": 2, **settings}
        made.append(Batcher(machine, lambda item: max(1, item), **settings))
        return made[-1]

    yield make
    machine.let_go()
    for batcher in made:
        batcher.close()


async def asked(batcher: Batcher[int, int], items: list[int]) -> asyncio.Task[list[int]]:
    """Let a request wait, and return when it does."""
    task = asyncio.create_task(batcher.run(items))
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("lanes", [1, 2, 3])
async def test_as_many_batches_as_lanes_are_computed_side_by_side(maker: Maker, machine: Machine, lanes: int) -> None:
    batcher = maker(lanes=lanes)
    machine.held = {90, 91, 92, 93}
    tasks = [await asked(batcher, [item]) for item in (90, 91, 92, 93)]
    await machine.until(lambda: machine.inside == lanes)
    await asyncio.sleep(0.02)
    assert len(machine.batches) == lanes
    machine.let_go()
    assert await asyncio.gather(*tasks) == [[900], [910], [920], [930]]
    assert machine.most == lanes
    assert len(set(machine.threads)) == lanes
    batcher.close()  # batches are counted when their results are gone already
    assert batcher.batches == len(machine.batches) == 4


async def test_one_request_is_computed_on_both_lanes_and_answered_in_order(maker: Maker, machine: Machine) -> None:
    batcher = maker(budget=10_000)
    machine.held = {300, 299}
    items = [299, *range(200, 220), 300, 1, 2]
    task = await asked(batcher, items)
    await machine.until(lambda: machine.inside == 2 or any({300, 299} <= set(batch) for batch in machine.batches))
    machine.let_go(300)
    machine.let_go()
    assert await task == [item * 10 for item in items]
    assert sorted(item for batch in machine.batches for item in batch) == sorted(items)
    assert len(machine.batches) > 1


async def test_a_batch_that_ends_first_does_not_come_first(maker: Maker, machine: Machine) -> None:
    batcher = maker()
    machine.held = {95}
    task = await asked(batcher, [95, 5, 94, 4])
    await machine.until(lambda: sum(map(len, machine.batches)) == 4)
    await asyncio.sleep(0)
    assert not task.done()
    machine.let_go()
    assert await task == [950, 50, 940, 40]


@pytest.mark.parametrize("settings", [{}, {"express": 20}, {"lanes": 3, "express": 20}, {"lanes": 1, "express": 20}])
async def test_many_requests_each_get_their_own(maker: Maker, machine: Machine, settings: dict[str, Any]) -> None:
    batcher = maker(**settings)
    rng = random.Random(3)
    requests = [[rng.randint(1, 120) for _ in range(rng.randint(1, 12))] for _ in range(150)]
    found = await asyncio.gather(*(batcher.run(items) for items in requests))
    assert found == [[item * 10 for item in items] for items in requests]
    assert sorted(item for batch in machine.batches for item in batch) == sorted(itertools.chain(*requests))
    batcher.close()  # batches are counted when their results are gone already
    assert batcher.batches == len(machine.batches)


async def test_each_thread_is_started_once_as_it_is_to_be(maker: Maker, machine: Machine) -> None:
    started: list[tuple[str, int]] = []
    batcher = maker(
        express=20,
        start=lambda: started.append(("lane", threading.get_ident())),
        start_express=lambda: started.append(("express", threading.get_ident())),
    )
    machine.held = {LARGE}
    large = [await asked(batcher, [LARGE]) for _ in range(2)]
    await machine.until(lambda: machine.inside == 2)
    assert await batcher.run([3]) == [30]
    machine.let_go()
    await asyncio.gather(*large)
    kinds = {thread: kind for kind, thread in started}
    assert sorted(kind for kind, _ in started) == ["express", "lane", "lane"]
    assert [kinds[thread] for thread in machine.threads] == ["lane", "lane", "express"]


@pytest.mark.parametrize("lanes", [1, 2])
async def test_a_small_request_passes_large_ones(maker: Maker, machine: Machine, lanes: int) -> None:
    batcher = maker(lanes=lanes, express=20)
    machine.held = {LARGE}
    large = [await asked(batcher, [LARGE] * 3) for _ in range(2)]
    await machine.until(lambda: machine.inside == lanes)
    for items in ([7], [3, 9, 2], [20]):
        assert await asyncio.wait_for(batcher.run(items), WAIT) == [item * 10 for item in items]
    assert not any(task.done() for task in large)
    machine.let_go()
    assert await asyncio.gather(*large) == [[900] * 3] * 2


async def test_a_request_of_more_tokens_waits_for_its_turn(maker: Maker, machine: Machine) -> None:
    batcher = maker(lanes=1, express=20)
    machine.held = {LARGE}
    large = await asked(batcher, [LARGE])
    await machine.until(lambda: machine.inside == 1)
    waits = await asked(batcher, [7, 7, 7])
    await asyncio.sleep(0.02)
    assert machine.batches == [[LARGE]]
    machine.let_go()
    assert await asyncio.gather(large, waits) == [[900], [70] * 3]


async def test_small_requests_alone_are_merged_and_not_taken_one_by_one(maker: Maker, machine: Machine) -> None:
    batcher = maker(lanes=1, express=20)
    machine.held = {9}
    first = await asked(batcher, [9])
    await machine.until(lambda: machine.inside == 1)
    others = [await asked(batcher, [5]) for _ in range(4)]
    await asyncio.sleep(0.02)
    assert machine.batches == [[9]]
    machine.let_go()
    await asyncio.gather(first, *others)
    assert machine.batches == [[9], [5] * 4]


async def test_without_express_a_small_request_waits(maker: Maker, machine: Machine) -> None:
    batcher = maker(lanes=1)
    machine.held = {LARGE}
    large = await asked(batcher, [LARGE])
    await machine.until(lambda: machine.inside == 1)
    small = await asked(batcher, [3])
    await asyncio.sleep(0.02)
    assert machine.batches == [[LARGE]]
    machine.let_go()
    assert await asyncio.gather(large, small) == [[900], [30]]


async def test_a_failing_item_fails_its_own_request_only(maker: Maker, machine: Machine) -> None:
    batcher = maker(express=20)
    machine.failing = {5: ValueError("five"), 61: ValueError("sixty-one")}
    machine.held = {99}
    holding = [await asked(batcher, [99]) for _ in range(2)]
    await machine.until(lambda: machine.inside == 2)
    requests = [[1, 2], [5, 30], [7], [60, 61, 62], [63, 64], [5]]
    tasks = [await asked(batcher, items) for items in requests]
    machine.let_go()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*holding)
    for items, one in zip(requests, found, strict=True):
        bad = machine.failing.keys() & set(items)
        assert isinstance(one, ValueError) if bad else one == [item * 10 for item in items]


async def test_a_request_that_fails_on_one_lane_while_another_computes_it(maker: Maker, machine: Machine) -> None:
    batcher = maker(budget=90)
    machine.failing = {90: ValueError("ninety")}
    machine.held = {80}
    task = await asked(batcher, [80, 90, 70, 71, 72])
    with pytest.raises(ValueError, match="ninety"):
        await asyncio.wait_for(task, WAIT)
    machine.let_go()
    assert await batcher.run([1]) == [10]
    await machine.until(lambda: machine.inside == 0)


async def test_where_memory_runs_out_on_both_lanes_batches_are_halved(maker: Maker, machine: Machine) -> None:
    machine.room = 3
    batcher = maker(budget=1_000)
    assert await asyncio.gather(*(batcher.run([50] * 10) for _ in range(3))) == [[500] * 10] * 3
    machine.room = 0
    with pytest.raises(OutOfMemory, match="shorter"):
        await batcher.run([5, 5])
    machine.room = 10
    assert await batcher.run([5]) == [50]


async def test_a_caller_that_leaves_takes_its_items_along(maker: Maker, machine: Machine) -> None:
    batcher = maker(express=20)
    machine.held = {LARGE}
    large = [await asked(batcher, [LARGE]) for _ in range(2)]
    await machine.until(lambda: machine.inside == 2)
    gone, stays = await asked(batcher, [50] * 20), await asked(batcher, [60])
    large[0].cancel()
    gone.cancel()
    await asyncio.gather(gone, large[0], return_exceptions=True)
    machine.let_go()
    assert await stays == [600]
    assert await large[1] == [900]
    assert sorted(machine.batches) == [[60], [LARGE], [LARGE]]
    assert await batcher.run([1]) == [10]


async def test_closing_ends_those_who_wait_and_all_threads(maker: Maker, machine: Machine) -> None:
    before = threading.active_count()
    batcher = maker(lanes=3, express=20)
    assert threading.active_count() == before + 4
    machine.held = {LARGE, 3}
    large = [await asked(batcher, [LARGE]) for _ in range(3)]
    await machine.until(lambda: machine.inside == 3)
    small = await asked(batcher, [3])
    await machine.until(lambda: machine.inside == 4)
    waiting = [await asked(batcher, items) for items in ([50], [2], [60] * 9)]
    closing = asyncio.create_task(asyncio.to_thread(batcher.close))
    for task in waiting:
        with pytest.raises(ShuttingDown):
            await asyncio.wait_for(task, WAIT)
    assert not closing.done()
    machine.let_go()
    await asyncio.wait_for(closing, WAIT)
    assert await asyncio.gather(*large, small) == [[900]] * 3 + [[30]]
    assert not any(thread.is_alive() for thread in batcher._threads)
    with pytest.raises(ShuttingDown):
        await batcher.run([1])


async def test_closing_without_work_ends_at_once(maker: Maker) -> None:
    await asyncio.wait_for(asyncio.to_thread(maker(lanes=4, express=20).close), WAIT)


# The choice itself, without threads.


def job(schedule: Schedule[Any, Any], lengths: list[int]) -> Job[Any, Any]:
    made: Job[Any, Any] = Job(len(lengths), lambda error: None)
    schedule.add(made, [(length, length) for length in lengths])
    return made


def lengths(batch: list[Any]) -> list[int]:
    return [entry.length for entry in batch]


@pytest.mark.parametrize(
    ("given", "budget", "parts", "first"),
    [
        ([100] * 40, 10_000, 1, 40),
        ([100] * 40, 10_000, 2, 20),
        ([100] * 40, 10_000, 4, 10),
        ([100] * 40, 600, 4, 6),
        ([100] * 4, 10_000, 4, 2),
        ([10] * 4, 10_000, 4, 4),
        ([10] * 40, 100, 1, 10),
        ([10] * 40, 100, 4, 10),
        ([1_000] * 2, 10_000, 4, 1),
    ],
)
def test_what_waits_is_parted_but_not_into_crumbs(given: list[int], budget: int, parts: int, first: int) -> None:
    schedule: Schedule[Any, Any] = Schedule(budget, 0)
    job(schedule, given)
    assert len(schedule.take(parts)) == first


def test_parts_are_of_all_that_waits_still() -> None:
    schedule: Schedule[Any, Any] = Schedule(10_000, 0)
    job(schedule, [100] * 20)
    job(schedule, [100] * 20)
    taken = []
    while batch := schedule.take(2):
        taken.append(len(batch))
    assert taken == [20, 10, 5, 2, 2, 1]
    assert schedule.take(2) == []


@pytest.mark.parametrize(
    ("requests", "most", "taken"),
    [
        ([], 20, []),
        ([[50], [8, 3, 5]], 20, [8, 5, 3]),
        ([[50], [20]], 20, [20]),
        ([[50], [21]], 20, []),
        ([[9, 9, 9], [50]], 20, []),
        ([[15], [4, 4], [16]], 20, [4, 4]),
    ],
)
def test_the_smallest_request_is_taken_whole(requests: list[list[int]], most: int, taken: list[int]) -> None:
    schedule: Schedule[Any, Any] = Schedule(10, 0)
    for lengths_ in requests:
        job(schedule, lengths_)
    assert lengths(schedule.take_small(most)) == taken
    assert len(schedule) == sum(map(len, requests)) - len(taken)
    assert len(schedule.jobs()) == len(requests) - bool(taken)


def test_what_is_left_of_a_large_request_is_not_small() -> None:
    schedule: Schedule[Any, Any] = Schedule(20, 0)
    large = job(schedule, [10] * 3)
    schedule.take()
    assert (large.size, large.tokens, large.waiting) == (30, 10, 1)
    assert schedule.take_small(20) == []
    small = job(schedule, [15])
    # Of what waits the large one's rest is less, but it is the small request that is waited for.
    assert [entry.job for entry in schedule.take_small(20)] == [small]


def test_small_ones_that_are_taken_leave_the_others_their_turns() -> None:
    schedule: Schedule[Any, Any] = Schedule(20, 0)
    large = job(schedule, [10] * 6)
    for _ in range(3):
        small = job(schedule, [2, 2])
        assert {entry.job for entry in schedule.take_small(20)} == {small}
        assert {entry.job for entry in schedule.take()} == {large}
    assert schedule.jobs() == []


@pytest.mark.parametrize(
    ("padding", "overhead", "batches"),
    [
        (1.0, 100, [[100, 50], [40, 10]]),
        (0.5, 100, [[100, 50, 40], [10]]),
        (0.0, 0, [[100, 50, 40, 10]]),
        (1.0, 10, [[100], [50, 40], [10]]),
        (0.1, 10, [[100, 50], [40, 10]]),
    ],
)
def test_padding_counts_as_much_as_it_costs(padding: float, overhead: int, batches: list[list[int]]) -> None:
    schedule: Schedule[Any, Any] = Schedule(245, overhead, None, padding)
    job(schedule, [100, 50, 40, 10])
    found = []
    while batch := schedule.take():
        found.append(lengths(batch))
    assert found == batches
