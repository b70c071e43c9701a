"""The idle clock: it starts when the last request in flight ends, and what it ends comes back with the next call."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from host.lifecycle import deployment
from host.state import State

pytestmark = pytest.mark.anyio


async def test_the_clock_starts_when_the_last_request_ends(house):
    house = await house()
    a = house.serve("a", placement="inline", idle=0.3)
    await house.call(delay=0.5)  # longer than the idle time
    assert a.state is State.READY
    assert 0 <= a.status().idle_left <= 0.3
    await house.until(lambda: a.state is State.COLD)
    assert 0.3 <= time.monotonic() - a.last_used < 30
    assert [event.reason for event in house.told("Evicted")] == ["idle"]


async def test_an_open_stream_keeps_it_even_when_nothing_comes(house):
    house = await house()
    a = house.serve("a", placement="inline", idle=0.1)
    stream = house.stream(hang=True)
    assert (await anext(stream)).text == "x"
    await house.call()
    await asyncio.sleep(0.4)
    assert (a.state, a.status().idle_left, a.in_flight) == (State.READY, None, 1)
    await stream.aclose()
    await house.until(lambda: a.state is State.COLD)


async def test_every_call_sets_the_clock_back(house, monkeypatch):
    house = await house()
    now = [1000.0]
    monkeypatch.setattr(deployment, "time", SimpleNamespace(monotonic=lambda: now[0]))
    a = house.serve("a", placement="inline", idle=100)
    for _ in range(4):
        await house.call()
        now[0] += 60
        a._changed.set()  # it looks at the clock now, and not when real seconds have passed
        await asyncio.sleep(0.02)
    assert (a.state, a.status().loads, a.status().idle_left) == (State.READY, 1, 40)
    now[0] += 40
    a._changed.set()
    await house.until(lambda: a.state is State.COLD)


async def test_idle_zero_evicts_at_once_and_not_before(house):
    house = await house()
    a = house.serve("a", placement="inline", idle=0)
    for loads in (1, 2, 3):
        assert [event.text for event in [event async for event in house.stream(text="a b", delay=0.02)][:2]] == [
            "a",
            " b",
        ]
        await house.until(lambda: a.state is State.COLD)
        assert (a.status().loads, a.status().evictions) == (loads, loads)


async def test_idle_never_is_kept(house):
    house = await house()
    a = house.serve("a", placement="inline", idle="never")
    await house.call()
    status = a.status()
    assert (status.idle, status.idle_left) == (None, None)
    await asyncio.sleep(0.2)
    assert a.state is State.READY
    assert not a.evictable


async def test_an_eviction_is_never_missed_when_the_clock_runs_out_between_two_looks(house, monkeypatch):
    """The idle time is over by the time it is asked how much of it is left."""
    house = await house()
    a = house.serve("a", placement="inline", idle=0.05)
    real = type(a)._reason

    def slow(self):
        reason = real(self)
        if reason is None and self._free:
            time.sleep(0.06)
        return reason

    monkeypatch.setattr(type(a), "_reason", slow)
    await house.call()
    await house.until(lambda: a.state is State.COLD)


async def test_memory_is_given_back_by_idling(house):
    house = await house()
    house.serve("a", idle=0.05, options={"plan_bytes": 1000})
    await house.call()
    assert house.runtime.budget.held() == 1000
    await house.until(lambda: house.runtime.budget.held() == 0)
