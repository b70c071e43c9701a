"""The budget at work: who must go, in which order, who waits, and what is refused. Sizes are what echo plans say."""

import asyncio
import time

import pytest

from host.errors import InsufficientMemory, QueueTimeout
from host.state import State

pytestmark = pytest.mark.anyio


def inline(house, *names, bytes_=60, **keys):
    return [house.serve(name, placement="inline", options={"plan_bytes": bytes_, **keys.pop("options", {})}, **keys)
            for name in names]  # fmt: skip


async def test_the_least_recently_used_goes_first(house):
    house = await house(budget={"ram": 130})
    a, b, c = inline(house, "a", "b", "c")
    for name in "ab":
        await house.call(name)
    await house.call("a")
    await house.call("c")
    assert (a.state, b.state, c.state) == (State.READY, State.COLD, State.READY)
    await house.call("b")
    assert (a.state, b.state, c.state) == (State.COLD, State.READY, State.READY)
    assert [(event.name, event.reason) for event in house.told("Evicted")] == [("b", "memory"), ("a", "memory")]
    assert house.runtime.budget.held() == 120


async def test_only_as_many_go_as_must(house):
    house = await house(budget={"ram": 200})
    a, b, c = inline(house, "a", "b", "c")
    for name in "abc":
        await house.call(name)
    assert {d.state for d in (a, b, c)} == {State.READY}
    house.serve("big", placement="inline", options={"plan_bytes": 100})
    await house.call("big")
    assert (a.state, b.state, c.state) == (State.COLD, State.COLD, State.READY)


async def test_a_busy_one_is_not_evicted_but_waited_for(house):
    house = await house(budget={"ram": 100})
    a, b = inline(house, "a", "b")
    hanging = house.stream("a", hang=True)
    await anext(hanging)
    stream = house.stream("a", text="1 2 3 4 5 6", delay=0.05)
    await anext(stream)
    call = house.start("b")
    await house.until(lambda: "waiting for memory" in b.stage())
    assert len([event async for event in stream]) == 6  # five more tokens and the end: nothing was cut
    assert (a.state, call.done()) == (State.READY, False)
    await hanging.aclose()
    assert (await call).text == "x"
    assert (a.state, b.state) == (State.COLD, State.READY)


async def test_a_pinned_one_is_not_evicted_and_the_wait_has_a_bound(house):
    house = await house(budget={"ram": 100})
    (a,) = inline(house, "a", idle="never")
    b = house.serve("b", placement="inline", options={"plan_bytes": 60}, queue={"wait": 0.2})
    await house.call("a")
    began = time.monotonic()
    with pytest.raises(QueueTimeout, match="waiting for memory") as caught:
        await house.call("b")
    assert 0.2 <= time.monotonic() - began < 30  # and not the minute that is the default
    assert caught.value.retry_after is not None
    await house.until(lambda: b.state is State.COLD)
    assert (a.state, b.status().cooldown_left) == (State.READY, 0.0)
    assert house.runtime.budget.held() == 60


async def test_a_load_by_hand_that_waits_for_memory_has_a_bound_too(house):
    house = await house(budget={"ram": 100})
    inline(house, "a", idle="never")
    b = house.serve("b", placement="inline", options={"plan_bytes": 60}, queue={"wait": 0.2})
    await house.call("a")
    with pytest.raises(QueueTimeout):
        await b.load()
    await house.until(lambda: b.state is State.COLD)


async def test_the_bound_counts_the_wait_for_memory_not_the_planning_before_it(house):
    house = await house(budget={"ram": 100})
    inline(house, "a")
    options = {"plan_bytes": 60, "plan_seconds": 3.0}
    house.serve("b", placement="inline", options=options, queue={"wait": 2.5})
    stream = house.stream("a", text="1 2", delay=0.4)
    await anext(stream)
    call = house.start("b")
    assert len([event async for event in stream]) == 2
    assert (await call).text == "x"


async def test_what_can_never_fit_is_refused_at_once_with_the_numbers(house):
    house = await house(budget={"ram": 100 << 20})
    a = house.serve("a", placement="inline", options={"plan_bytes": 150 << 20})
    b = house.serve("b", placement="inline", options={"plan_bytes": 50 << 20})
    await house.call("b")
    with pytest.raises(InsufficientMemory, match="150 MiB of ram, and the budget is 100 MiB") as caught:
        await house.call("a")
    assert caught.value.extra == {"pool": "ram", "bytes_needed": 150 << 20, "bytes_budget": 100 << 20}
    assert caught.value.retry is False
    assert (a.state, b.state) == (State.FAILED, State.READY)  # nobody had to go for it


async def test_a_budget_that_holds_one_takes_two_in_turns(house):
    house = await house(budget={"ram": 100})
    a, b = inline(house, "a", "b")
    for n in range(8):
        name = "ab"[n % 2]
        assert (await house.call(name, text=f"{name}{n}")).text == f"{name}{n}"
    assert (a.status().loads, b.status().loads) == (4, 4)


async def test_both_at_once_and_many_are_all_answered(house):
    house = await house(budget={"ram": 100})
    a, b = inline(house, "a", "b")
    calls = [house.start("ab"[n % 2], text=str(n), delay=0.01) for n in range(40)]
    async with asyncio.timeout(60):
        assert [answer.text for answer in await asyncio.gather(*calls)] == [str(n) for n in range(40)]
    # Those that wait for the loaded one go first: not a load for each.
    assert a.status().loads + b.status().loads <= 4


async def test_an_eviction_raced_by_a_new_call(house):
    """The call comes while its model goes for the other one: both are answered."""
    house = await house(budget={"ram": 100})
    a, _ = inline(house, "a", "b", options={"close_seconds": 0.03})
    for moment in range(12):
        await a.load()
        other = house.start("b", text="b")
        await asyncio.sleep(moment * 0.004)
        async with asyncio.timeout(60):
            assert (await house.call("a", text="a")).text == "a"
            assert (await other).text == "b"
        assert house.runtime.budget.held() == 60


async def test_an_admission_is_not_starved_by_a_model_that_is_never_idle(house, impatient):
    house = await house(budget={"ram": 100})
    a, b = inline(house, "a", "b")
    over = False

    async def keep_busy():
        while not over:
            await house.call("a", text="1 2 3", delay=0.01)

    busy = [asyncio.ensure_future(keep_busy()) for _ in range(3)]
    await house.until(lambda: a.in_flight == 3)
    async with asyncio.timeout(60):
        assert (await house.call("b", text="b")).text == "b"
    over = True
    await asyncio.gather(*busy)  # and none of the others failed
    assert house.told("Evicted")[0].name == "a"
    assert b.status().loads >= 1


async def test_two_that_load_longer_than_the_patience_do_not_undo_each_others_loads(house, impatient):
    """The one that waits pauses the other one while it loads: it answers those who waited for it all the same."""
    house = await house(budget={"ram": 100})
    a, b = inline(house, "a", "b", options={"load_seconds": 0.3})
    first = house.start("a", text="a")
    await house.until(lambda: a.state is State.LOADING)
    second = house.start("b", text="b")
    async with asyncio.timeout(30):
        assert [answer.text for answer in await asyncio.gather(first, second)] == ["a", "b"]
    assert (a.status().loads, b.status().loads) == (1, 1)


async def test_what_comes_up_for_nobody_goes_for_who_waits(house, impatient):
    """It was loading when its memory was asked for, and no call of its own tells that it is idle now."""
    house = await house(budget={"ram": 100})
    a, _ = inline(house, "a", "b", options={"load_seconds": 0.3})
    load = asyncio.ensure_future(a.load())
    await house.until(lambda: a.state is State.LOADING)
    call = house.start("b", text="b")
    await load
    async with asyncio.timeout(30):
        assert (await call).text == "b"


async def test_a_pause_ends_when_whoever_waited_leaves(house, impatient):
    house = await house(budget={"ram": 100})
    a, _ = inline(house, "a", "b")
    hanging = house.start("a", hang=True)
    await house.until(lambda: a.in_flight == 1)
    other = house.start("b")
    await house.until(lambda: a._paused)
    held_up = house.start("a")
    await house.until(lambda: a.waiting == 1)
    await asyncio.sleep(0.05)
    assert a.waiting == 1
    other.cancel()
    assert (await held_up).text == "x"
    hanging.cancel()


async def test_a_large_admission_is_not_overtaken_by_small_ones(house):
    house = await house(budget={"ram": 100})
    _, c = inline(house, "a", "c", bytes_=40)
    big = house.serve("big", placement="inline", options={"plan_bytes": 90})
    stream = house.stream("a", hang=True)
    await anext(stream)
    first = house.start("big", text="big")
    await house.until(lambda: "waiting for memory" in big.stage())
    second = house.start("c")  # would fit beside `a`
    await house.until(lambda: "waiting for memory" in c.stage())
    await asyncio.sleep(0.1)
    assert c.state is State.PLANNING
    await stream.aclose()
    assert (await first).text == "big"
    assert (await second).text == "x"
    assert house.told("Loaded")[1].name == "big"


async def test_it_waits_until_the_memory_is_really_free(house):
    house = await house(budget={"ram": 1000})
    free = 10
    house.runtime.budget._available = lambda: free
    (a,) = inline(house, "a", bytes_=60)
    call = house.start("a")
    await house.until(lambda: "waiting for memory" in a.stage())
    await asyncio.sleep(0.3)
    assert not call.done()
    free = 60
    assert (await call).text == "x"


async def test_idle_ones_go_when_the_machine_is_short_though_the_budget_is_not(house):
    house = await house(budget={"ram": 1000})
    a, b = inline(house, "a", "b")
    await house.call("a")
    house.runtime.budget._available = lambda: 0 if a.state is not State.COLD else 60
    assert (await house.call("b")).text == "x"
    assert (a.state, b.state) == (State.COLD, State.READY)


async def test_accelerators_are_pools_of_their_own(house):
    house = await house(budget={"ram": 100, "cuda:1": 50})

    def gpu(name, device, bytes_):
        options = {"plan_bytes": bytes_, "vram_bytes": 100}
        return house.serve(name, placement="inline", device=device, options=options)

    ram = inline(house, "ram")[0]
    a, b, c = gpu("a", "cuda:0", 60), gpu("b", "cuda:0", 60), gpu("c", "cuda:1", 50)
    for name in ("ram", "a", "c", "b"):
        await house.call(name)
    assert [d.state for d in (ram, a, b, c)] == [State.READY, State.COLD, State.READY, State.READY]
    assert house.runtime.budget.totals == {"ram": 100, "cuda:0": 95, "cuda:1": 50}
    d = gpu("d", "cuda:0", 96)
    with pytest.raises(InsufficientMemory, match="cuda:0"):
        await house.call("d")
    assert d.state is State.FAILED
    assert b.state is State.READY


async def test_a_changed_manifest_loads_beside_its_predecessor_and_both_are_counted(house):
    house = await house(budget={"ram": 200})
    (old,) = inline(house, "a")
    stream = house.stream("a", hang=True)
    await anext(stream)
    (new,) = inline(house, "a", bytes_=50)
    assert new is not old
    await house.call("a")
    assert (house.runtime.budget.held(), old.state, old.in_flight) == (110, State.DRAINING, 1)
    await stream.aclose()
    await house.until(lambda: old.state is State.COLD)
    assert house.runtime.budget.held() == 50
