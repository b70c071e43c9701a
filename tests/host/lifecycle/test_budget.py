"""The budget by itself: numbers in, holders asked to go. The life of real holders is tested in `test_memory.py`."""

import asyncio
import time

import pytest

from host.errors import InsufficientMemory
from host.function import Plan
from host.lifecycle.budget import Budget, mib

pytestmark = pytest.mark.anyio


class Holding:
    """A holder that does as it is told."""

    def __init__(self, budget, name="x", last_used=0.0, evictable=True, goes=True):
        self.budget, self.name, self.last_used, self.evictable, self.goes = budget, name, last_used, evictable, goes
        self.paused, self.evictions = [], 0

    async def evict(self, reason):
        assert reason == "memory"
        await asyncio.sleep(0)
        if not self.goes:
            self.evictable = False
            return False
        self.evictions += 1
        self.budget.release(self)
        return True

    def pause(self, paused):
        self.paused.append(paused)


def plan(ram=0, **pools):
    return Plan(bytes={"ram": ram, **pools})


async def test_what_fits_is_held_and_released_once():
    budget = Budget({"ram": 100})
    holder = Holding(budget)
    await budget.admit(holder, plan(60))
    assert budget.held() == 60
    budget.release(holder)
    budget.release(holder)
    assert budget.held() == 0


async def test_a_release_ends_a_wait(monkeypatch):
    """By itself: not at the end of the waiting one's patience, and with nobody else who pokes."""
    monkeypatch.setattr("host.lifecycle.budget.PATIENCE", 3600.0)
    budget = Budget({"ram": 100})
    busy = Holding(budget, evictable=False)
    await budget.admit(busy, plan(80))
    waits = asyncio.ensure_future(budget.admit(Holding(budget), plan(90)))
    await asyncio.sleep(0.01)
    budget.release(busy)
    await asyncio.wait_for(waits, 30)


async def test_exactly_all_fits_and_one_more_never_does():
    budget = Budget({"ram": 100})
    await budget.admit(Holding(budget), plan(100))
    with pytest.raises(InsufficientMemory) as caught:
        await budget.admit(Holding(budget), plan(101))
    assert caught.value.extra == {"pool": "ram", "bytes_needed": 101, "bytes_budget": 100}


async def test_the_least_recently_used_goes_and_no_more_than_must():
    budget = Budget({"ram": 100})
    holders = [Holding(budget, str(n), last_used) for n, last_used in enumerate((3.0, 1.0, 2.0))]
    for holder in holders:
        await budget.admit(holder, plan(30))
    await budget.admit(Holding(budget), plan(50))
    assert [holder.evictions for holder in holders] == [0, 1, 1]


async def test_two_of_one_name_are_two_holders():
    budget = Budget({"ram": 100})
    old, new = Holding(budget, "a"), Holding(budget, "a")
    await budget.admit(old, plan(40))
    await budget.admit(new, plan(30))
    assert budget.held() == 70
    budget.release(old)
    assert budget.held() == 30


async def test_only_holders_of_the_short_pool_go():
    budget = Budget({"ram": 100, "cuda:0": 50})
    ram, vram = Holding(budget, "ram"), Holding(budget, "vram", last_used=9)
    await budget.admit(ram, plan(50))
    await budget.admit(vram, plan(0, **{"cuda:0": 40}))
    await budget.admit(Holding(budget), plan(10, **{"cuda:0": 20}))
    assert (ram.evictions, vram.evictions) == (0, 1)


async def test_a_victim_that_found_work_is_left_and_another_one_goes():
    budget = Budget({"ram": 100})
    busy, idle = Holding(budget, "busy", 1.0, goes=False), Holding(budget, "idle", 2.0)
    await budget.admit(busy, plan(50))
    await budget.admit(idle, plan(50))
    await budget.admit(Holding(budget), plan(40))
    assert (busy.evictions, idle.evictions) == (0, 1)


async def test_a_cancelled_wait_holds_nothing_and_lets_the_next_one_in():
    budget = Budget({"ram": 100})
    busy = Holding(budget, evictable=False)
    await budget.admit(busy, plan(80))
    waits = asyncio.ensure_future(budget.admit(Holding(budget), plan(90)))
    behind = asyncio.ensure_future(budget.admit(Holding(budget), plan(20)))
    await asyncio.sleep(0.01)
    assert not behind.done()  # in order, though it would fit
    waits.cancel()
    await behind
    assert budget.held() == 100


@pytest.mark.parametrize("turns", range(5))
async def test_a_wait_that_is_cancelled_in_the_moment_of_news_is_cancelled(turns):
    """However many turns of the loop lie between the two."""
    budget = Budget({"ram": 100})
    await budget.admit(Holding(budget, evictable=False), plan(80))
    waits = asyncio.ensure_future(budget.admit(Holding(budget), plan(90)))
    await asyncio.sleep(0.01)
    budget.poke()
    for _ in range(turns):
        await asyncio.sleep(0)
    waits.cancel()
    done, _ = await asyncio.wait({waits}, timeout=30)
    assert done and waits.cancelled()
    await budget.admit(Holding(budget), plan(20))  # and its turn is over


async def test_busy_holders_are_paused_while_one_has_waited_long_and_not_after(impatient):
    budget = Budget({"ram": 100})
    busy = Holding(budget, evictable=False)
    await budget.admit(busy, plan(80))
    began = time.monotonic()
    waits = asyncio.ensure_future(budget.admit(Holding(budget), plan(90)))
    async with asyncio.timeout(60):
        while not busy.paused:
            await asyncio.sleep(0.01)
    assert time.monotonic() - began >= 0.1
    assert busy.paused == [True]
    busy.evictable = True
    budget.poke()
    await waits
    assert (busy.paused, busy.evictions) == ([True, False], 1)


async def test_the_share_of_an_accelerator_is_known_from_the_first_plan():
    budget = Budget({"ram": 100})
    told = Plan(bytes={"cuda:0": 10}, pools={"cuda:0": 1000})
    await budget.admit(Holding(budget), told)
    assert budget.totals["cuda:0"] == 950
    with pytest.raises(InsufficientMemory):
        await budget.admit(Holding(budget), Plan(bytes={"cuda:0": 951}, pools={"cuda:0": 1000}))


async def test_memory_that_is_not_free_yet_is_waited_for():
    free = [0]
    budget = Budget({"ram": 100}, lambda: free[0])
    waits = asyncio.ensure_future(budget.admit(Holding(budget), plan(50)))
    await asyncio.sleep(0.15)
    assert not waits.done()
    free[0] = 50
    await asyncio.wait_for(waits, 60)


@pytest.mark.parametrize(("bytes_", "whole"), [(0, 0), (1, 1), (1 << 20, 1), ((1 << 20) + 1, 2)])
def test_mebibytes_are_rounded_up(bytes_, whole):
    assert mib(bytes_) == whole
