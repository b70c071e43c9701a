"""Calls and a model on its way down: they wait for its end, then a load starts. None is lost or waits for ever."""

import asyncio
import time

import pytest

from host.errors import ModelNotFound, Unavailable
from host.state import State

pytestmark = pytest.mark.anyio
CLOSING = 0.04


@pytest.mark.parametrize("placement", ["inline", "process"])
async def test_a_call_at_any_moment_of_an_unload_is_answered(house, placement):
    house = await house()
    a = house.serve("a", placement=placement, options={"close_seconds": CLOSING})
    moments = 30 if placement == "inline" else 12
    for moment in (*range(moments), State.DRAINING, State.COLD):
        await a.load()
        loads = a.status().loads
        unload = asyncio.ensure_future(a.unload())
        if isinstance(moment, State):
            await house.until(lambda moment=moment: a.state is moment)
        else:
            await asyncio.sleep(moment * CLOSING * 1.5 / moments)
        async with asyncio.timeout(60):
            assert (await house.call()).text == "x"
            assert await unload
        assert a.status().loads == loads + 1, moment
        assert house.runtime.budget.held() == sum(a.status().bytes.values()) > 0


async def test_a_call_at_any_moment_of_an_idle_eviction_is_answered(house):
    house = await house()
    a = house.serve("a", placement="inline", idle=0.03, options={"close_seconds": 0.01})
    for moment in range(40):
        async with asyncio.timeout(60):
            assert (await house.call(text=str(moment))).text == str(moment)
        await asyncio.sleep(0.02 + moment * 0.001)
    assert a.status().loads > 5


async def test_draining_lets_what_runs_end_and_starts_nothing_new(house):
    house = await house()
    a = house.serve("a", options={"capacity": 4})
    stream = house.stream(text="a b c d e", delay=0.05)
    await anext(stream)
    unload = asyncio.ensure_future(a.unload())
    await house.until(lambda: a.state is State.DRAINING)
    late = house.start(text="late")
    pid = a.status().pid
    assert [event.text async for event in stream if hasattr(event, "text")] == [" b", " c", " d", " e"]
    assert await unload
    assert (await late).text == "late"
    assert a.status().pid != pid
    assert (await house.report()).started == 1


async def test_unloading_while_calls_wait_for_a_slot_loads_anew_for_them(house):
    house = await house()
    a = house.serve("a", placement="inline", slots=1)
    await a.load()
    first = house.start(text="first", delay=0.1)
    waiting = [house.start(text=str(n)) for n in range(3)]
    await house.until(lambda: (a.in_flight, a.waiting) == (1, 3))
    await a.unload()
    assert [(await call).text for call in (first, *waiting)] == ["first", "0", "1", "2"]
    assert a.status().loads == 2


async def test_calls_that_do_not_end_in_time_are_ended(house):
    house = await house(drain=0.2)
    a = house.serve("a")
    call = house.start(hang=True)
    await house.until(lambda: a.in_flight == 1)
    began = time.monotonic()
    await a.unload()
    assert 0.2 <= time.monotonic() - began < 30  # it would hang for ever
    with pytest.raises(Unavailable, match="unloaded while it answered"):
        await call
    assert (a.in_flight, a.state) == (0, State.COLD)


async def test_unloading_what_is_cold_does_nothing(house):
    house = await house()
    a = house.serve("a")
    assert not await a.unload()
    assert a.state is State.COLD
    assert house.states() == []


async def test_two_unloads_are_one(house):
    house = await house()
    a = house.serve("a", options={"close_seconds": 0.1})
    await a.load()
    assert await asyncio.gather(a.unload(), a.unload()) == [True, True]
    assert a.status().evictions == 1


async def test_loading_what_is_draining_waits_and_loads(house):
    house = await house()
    a = house.serve("a", options={"close_seconds": 0.1})
    await a.load()
    unload = asyncio.ensure_future(a.unload())
    await house.until(lambda: a.state is State.DRAINING)
    await a.load()
    assert unload.done()
    assert (a.state, a.status().loads) == (State.READY, 2)


async def test_a_place_that_cannot_be_stopped_does_not_take_its_deployment_with_it(house, monkeypatch):
    house = await house()
    a = house.serve("a", placement="inline")
    await a.load()

    async def fail(grace):
        raise OSError("no")

    monkeypatch.setattr(a._running.link, "stop", fail)
    assert await a.unload()
    assert (await house.call()).text == "x"
    assert a.status().loads == 2


@pytest.mark.parametrize("moment", range(6))
async def test_closing_at_any_moment_of_a_start_ends(house, moment):
    house = await house()
    a = house.serve("a", placement="inline", options={"load_seconds": 0.02})
    call = house.start()
    await asyncio.sleep(moment * 0.008)
    (house.folder / "a.yaml").unlink()
    house.runtime.catalog.refresh()
    async with asyncio.timeout(60):
        (answer,) = await asyncio.gather(call, return_exceptions=True)
        await a._owner
    assert isinstance(answer, ModelNotFound) or answer.text == "x"
    assert house.runtime.budget.held() == 0


async def test_closing_in_the_very_moment_a_load_ends_is_not_forgotten(house):
    house = await house()
    a = house.serve("a", placement="inline", idle="never")
    came_up = a._came_up

    def close_first(running, seconds):
        a._closing = "removed"  # what `close` does while the load's result lies there and nobody has taken it
        came_up(running, seconds)

    a._came_up = close_first
    a._asked.join(0)
    a._changed.set()
    async with asyncio.timeout(60):
        await a._owner
    assert (house.runtime.budget.held(), a.status().loads) == (0, 1)
