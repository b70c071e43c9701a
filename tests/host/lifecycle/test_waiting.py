"""Waits and their bounds: queues, cool-downs, stalls; and callers that leave at any stage of a call."""

import asyncio
import time

import msgspec
import pytest

from host.errors import LoadFailed, QueueFull, QueueTimeout
from host.lifecycle import cooldown
from host.state import State

pytestmark = pytest.mark.anyio


async def test_one_more_than_the_queue_holds_is_refused(house):
    house = await house()
    a = house.serve("a", placement="inline", slots=1, queue={"size": 2})
    running = house.start(hang=True)
    await house.until(lambda: a.in_flight == 1)
    waiting = [house.start(text=str(n)) for n in (1, 2)]
    await house.until(lambda: a.waiting == 2)
    with pytest.raises(QueueFull, match="2 requests wait") as caught:
        await house.call()
    assert (caught.value.status, caught.value.extra) == (429, {"queue_size": 2})
    running.cancel()
    assert [(await call).text for call in waiting] == ["1", "2"]


async def test_a_queue_of_size_zero_refuses_what_would_wait(house):
    house = await house()
    a = house.serve("a", placement="inline", slots=2, queue={"size": 0})
    await a.load()
    running = [house.start(hang=True) for _ in range(2)]
    await house.until(lambda: a.in_flight == 2)
    with pytest.raises(QueueFull):
        await house.call()
    for call in running:
        call.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert (await house.call()).text == "x"


async def test_first_come_first_served(house):
    house = await house()
    house.serve("a", placement="inline", slots=1)
    order = []

    async def call(n):
        await house.call(text=str(n), delay=0.005)
        order.append(n)

    await asyncio.gather(*(call(n) for n in range(12)))
    assert order == list(range(12))


async def test_the_wait_in_the_queue_has_a_bound(house):
    house = await house()
    a = house.serve("a", placement="inline", slots=1, queue={"wait": 0.2})
    running = house.start(text="0", hang=True)
    await house.until(lambda: a.in_flight == 1)
    began = time.monotonic()
    with pytest.raises(QueueTimeout, match=r"waited 0\.2 seconds") as caught:
        await house.call()
    assert 0.2 <= time.monotonic() - began < 30  # and not the minute that is the default
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (503, "queue_timeout", 1.0)
    assert (a.waiting, a.in_flight) == (0, 1)
    running.cancel()


async def test_the_time_a_load_takes_does_not_count(house):
    house = await house()
    house.serve("a", placement="inline", queue={"wait": 0.1}, options={"load_seconds": 0.4})
    assert (await house.call()).text == "x"


async def test_a_queue_that_waits_for_ever_does(house):
    house = await house()
    a = house.serve("a", placement="inline", slots=1, queue={"wait": "never"})
    running = house.start(text="0", delay=0.3)
    await house.until(lambda: a.in_flight == 1)
    assert (await house.call()).text == "x"
    await running


# ------------------------------------------------------------------------------------------------ cool-down


async def test_a_failed_load_is_not_tried_again_before_its_cool_down_ends(house):
    house = await house()
    a = house.serve("a", placement="inline", options={"plan_fails": "no"})
    clock = [1000.0]
    a._cooldown = cooldown.Cooldown(lambda: clock[0])
    with pytest.raises(LoadFailed) as first:
        await house.call()
    assert first.value.retry_after == cooldown.FIRST == 10
    starts = house.states().count("planning")
    clock[0] += 9
    with pytest.raises(LoadFailed, match="no") as second:
        await house.call()
    assert second.value.retry_after == a.status().cooldown_left == 1
    assert house.states().count("planning") == starts == 1


async def test_the_cool_down_doubles_and_ends_with_success(house, monkeypatch):
    house = await house()
    a = house.serve("a", placement="inline", options={"plan_fails": "no"})
    clock = [1000.0]
    a._cooldown = cooldown.Cooldown(lambda: clock[0])
    for wait in (10, 20, 40, 80, 160, 300, 300):
        with pytest.raises(LoadFailed) as caught:
            await house.call()
        assert caught.value.retry_after == wait
        clock[0] += wait
    failing, options = house.runtime._around.options, (msgspec.Raw(b"\x80"), msgspec.Raw(b"\x80"))
    house.runtime._around.options = lambda *_: options
    assert (await house.call()).text == "x"
    house.runtime._around.options = failing
    await a.unload()
    with pytest.raises(LoadFailed) as caught:
        await house.call()
    assert caught.value.retry_after == 10


async def test_a_load_by_hand_skips_the_cool_down_and_counts(house):
    house = await house()
    a = house.serve("a", placement="inline", options={"plan_fails": "no"})
    for wait in (10, 20, 40):
        with pytest.raises(LoadFailed) as caught:
            await a.load()
        assert caught.value.retry_after == wait
    assert house.states().count("planning") == 3


# ------------------------------------------------------------------------------------------------ stall


@pytest.mark.parametrize("placement", ["inline", "process"])
async def test_a_plan_that_makes_no_progress_is_given_up(house, placement):
    house = await house(stall=0.2)
    a = house.serve("a", placement=placement, options={"plan_seconds": 1.0})
    await warm(house, placement)
    with pytest.raises(LoadFailed, match=r"no progress for 0\.2 seconds"):  # the plan itself would come in the end
        await house.call()
    assert a.state is State.FAILED
    assert house.runtime.budget.held() == 0


async def test_a_slow_load_that_makes_progress_is_not(house):
    house = await house(stall=3.0)
    house.serve("a", placement="inline", options={"load_seconds": 4.0})
    assert (await house.call()).text == "x"


# ------------------------------------------------------------------------------------------------ leaving


@pytest.mark.parametrize("placement", ["inline", "process"])
@pytest.mark.parametrize("options", [{"hang": True}, {"text": "1 2 3", "delay": 60}], ids=["hanging", "working"])
async def test_a_caller_that_leaves_frees_the_slot_and_stops_the_work(house, placement, options):
    house = await house()
    a = house.serve("a", placement=placement, slots=2)
    await a.load()
    call = house.start(**options)
    await house.begun()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert a.in_flight == 0
    report = await house.report()
    assert (report.cancelled, report.running) == (1, 0)
    assert [event.outcome for event in house.told("CallEnded")].count("cancelled") == 1


@pytest.mark.parametrize("placement", ["inline", "process"])
async def test_a_stream_that_is_closed_stops_the_work(house, placement):
    house = await house()
    a = house.serve("a", placement=placement, slots=1)
    stream = house.stream(text="1 2 3", delay=0.02, hang=True)
    await anext(stream)
    await stream.aclose()
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert a.in_flight == 0
    report = await house.report()
    assert (report.cancelled, report.running) == (1, 0)


async def test_a_stream_that_is_never_begun_costs_nothing(house):
    house = await house()
    a = house.serve("a")
    stream = house.stream()
    await stream.aclose()
    assert (a.state, house.events) == (State.COLD, [])


async def test_who_leaves_the_queue_is_not_served(house):
    house = await house()
    a = house.serve("a", placement="inline", slots=1)
    running = house.start(hang=True)
    await house.until(lambda: a.in_flight == 1)
    leaves, stays = house.start(text="leaves"), house.start(text="stays")
    await house.until(lambda: a.waiting == 2)
    leaves.cancel()
    await asyncio.gather(leaves, return_exceptions=True)
    assert a.waiting == 1
    running.cancel()
    assert (await stays).text == "stays"
    assert (await house.report()).started == 2


async def test_leaving_in_the_very_moment_of_being_served_gives_the_slot_back(house):
    house = await house()
    a = house.serve("a", placement="inline", slots=1)
    running = house.start(hang=True)
    await house.until(lambda: a.in_flight == 1)
    waiting = house.start()
    await house.until(lambda: a.waiting == 1)
    serve = a._queue.serve

    def serve_and_leave():
        served = serve()
        if served:
            waiting.cancel()  # after the slot was given, before its caller wakes
        return served

    a._queue.serve = serve_and_leave
    running.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    assert waiting.cancelled()
    a._queue.serve = serve
    assert (a.in_flight, a.waiting) == (0, 0)
    assert (await house.call()).text == "x"


async def warm(house, placement):
    """Have the forkserver up: the time it takes is none of the plan's."""
    if placement == "process":
        house.runtime._around.stall = 60.0
        other = house.serve("other")
        await other.load()
        await other.unload()
        house.runtime._around.stall = 0.2
