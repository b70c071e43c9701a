"""The compute thread: results in order, failures that stay where they belong, callers that leave."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from functions.engines.batching.batcher import Batcher
from host.errors import OutOfMemory, QueueFull, ShuttingDown

pytestmark = pytest.mark.anyio


class Machine:
    """Computes `item * 10`; it can be held, fails for the items it is told to, and keeps a record of its batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.threads: set[str] = set()
        self.failing: dict[int, Exception] = {}
        self.room = 1_000
        self.open = threading.Event()
        self.open.set()

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.threads.add(threading.current_thread().name)
        assert self.open.wait(60)
        if len(items) > self.room:
            raise MemoryError
        for item in items:
            if item in self.failing:
                raise self.failing[item]
        return [item * 10 for item in items]


Maker = Callable[..., Batcher[int, int]]


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def maker(machine: Machine) -> Iterator[Maker]:
    made: list[Batcher[int, int]] = []

    def make(**settings: Any) -> Batcher[int, int]:
        settings = {"budget": 100, "overhead": 1_000, **settings}
        made.append(Batcher(machine, lambda item: max(1, item), **settings))
        return made[-1]

    yield make
    machine.open.set()
    for batcher in made:
        batcher.close()


async def held(machine: Machine, batcher: Batcher[int, int]) -> asyncio.Task[list[int]]:
    """Occupy the thread with one item, so that what comes next waits together."""
    machine.open.clear()
    task = asyncio.create_task(batcher.run([99]))
    while not machine.batches:
        await asyncio.sleep(0.001)
    return task


@pytest.mark.parametrize("items", [[], [3], [3, 1, 2], [7, 7, 1, 90, 2, 50], list(range(60, 0, -7))])
async def test_results_keep_the_order_of_the_items(maker: Maker, items: list[int]) -> None:
    assert await maker().run(items) == [item * 10 for item in items]


async def test_one_thread_computes_everything(maker: Maker, machine: Machine) -> None:
    batcher = maker()
    await asyncio.gather(*(batcher.run([at % 30 + 1]) for at in range(100)))
    assert machine.threads == {"compute"}
    assert batcher.batches == len(machine.batches)


async def test_waiting_requests_are_merged_under_the_budget(maker: Maker, machine: Machine) -> None:
    batcher = maker(budget=40)
    first = await held(machine, batcher)
    others = [asyncio.create_task(batcher.run([10])) for _ in range(8)]
    await asyncio.sleep(0.01)
    machine.open.set()
    assert await asyncio.gather(*others) == [[100]] * 8
    assert await first == [990]
    assert machine.batches == [[99], [10] * 4, [10] * 4]


async def test_a_lone_request_waits_for_nobody(maker: Maker) -> None:
    batcher = maker()
    await batcher.run([1])
    took = []
    for _ in range(50):
        start = time.perf_counter()
        await batcher.run([1])
        took.append(time.perf_counter() - start)
    assert sorted(took)[25] < 0.02


async def test_a_failing_item_fails_its_own_request_only(maker: Maker, machine: Machine) -> None:
    batcher = maker()
    machine.failing[5] = ValueError("five")
    first = await held(machine, batcher)
    tasks = [asyncio.create_task(batcher.run(items)) for items in ([1, 2], [4, 5, 6], [7])]
    await asyncio.sleep(0.01)
    machine.open.set()
    good, bad, also_good = await asyncio.gather(*tasks, return_exceptions=True)
    assert good == [10, 20]
    assert also_good == [70]
    assert isinstance(bad, ValueError)
    assert await first == [990]


async def test_a_failed_request_computes_no_more(maker: Maker, machine: Machine) -> None:
    batcher = maker(budget=20)
    machine.failing[10] = ValueError("ten")
    with pytest.raises(ValueError, match="ten"):
        await batcher.run([10] * 40)
    assert len(machine.batches) == 1
    assert await batcher.run([1]) == [10]


async def test_where_memory_runs_out_batches_are_halved(maker: Maker, machine: Machine) -> None:
    machine.room = 3
    assert await maker().run([5] * 10) == [50] * 10
    assert max(map(len, machine.batches)) == 10
    assert sorted(len(batch) for batch in machine.batches if len(batch) <= 3) == [2, 2, 3, 3]


async def test_an_input_too_large_for_memory_alone_says_so(maker: Maker, machine: Machine) -> None:
    machine.room = 0
    with pytest.raises(OutOfMemory, match="shorter"):
        await maker().run([5, 5])
    machine.room = 10
    assert await maker().run([5]) == [50]


async def test_a_caller_that_leaves_takes_its_items_along(maker: Maker, machine: Machine) -> None:
    batcher = maker(budget=20)
    first = await held(machine, batcher)
    gone = asyncio.create_task(batcher.run([10] * 50))
    stays = asyncio.create_task(batcher.run([20]))
    await asyncio.sleep(0.01)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    machine.open.set()
    assert await stays == [200]
    await first
    assert gone.cancelled()
    assert machine.batches == [[99], [20]]


async def test_a_caller_that_leaves_while_computing_disturbs_nobody(maker: Maker, machine: Machine) -> None:
    batcher = maker()
    first = await held(machine, batcher)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    machine.open.set()
    assert await batcher.run([1]) == [10]


async def test_what_waits_is_bounded(maker: Maker, machine: Machine) -> None:
    batcher = maker(waiting_max=5)
    first = await held(machine, batcher)
    waiting = asyncio.create_task(batcher.run([1, 2, 3]))
    await asyncio.sleep(0.01)
    with pytest.raises(QueueFull) as caught:
        await batcher.run([4, 5, 6])
    assert caught.value.retry_after
    machine.open.set()
    assert await waiting == [10, 20, 30]
    await first
    assert len(await batcher.run(list(range(1, 10)))) == 9


async def test_closing_ends_those_who_wait(maker: Maker, machine: Machine) -> None:
    batcher = maker()
    first = await held(machine, batcher)
    waiting = asyncio.create_task(batcher.run([1]))
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(asyncio.to_thread(batcher.close))
    with pytest.raises(ShuttingDown):
        await waiting
    machine.open.set()
    await closing
    assert await first == [990]
    with pytest.raises(ShuttingDown):
        await batcher.run([1])


async def test_results_are_not_kept(maker: Maker) -> None:
    class Result:
        pass

    made: list[weakref.ref[Result]] = []

    def compute(items: Sequence[int]) -> list[Result]:
        found = [Result() for _ in items]
        made.extend(map(weakref.ref, found))
        return found

    batcher: Batcher[int, Result] = Batcher(compute, lambda item: 1, budget=10)
    try:
        await batcher.run([1, 2, 3])
        async with asyncio.timeout(60):  # the thread lets go of them when they have been told already
            while [ref() for ref in made] != [None] * 3:
                await asyncio.sleep(0.001)
    finally:
        batcher.close()


async def test_callers_on_several_event_loops(maker: Maker) -> None:
    batcher = maker()
    found = await asyncio.gather(*(asyncio.to_thread(asyncio.run, batcher.run([at, at + 1])) for at in range(1, 9)))
    assert found == [[at * 10, at * 10 + 10] for at in range(1, 9)]
