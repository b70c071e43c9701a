"""Cold starts: one load for many calls, whoever asks for it and whoever leaves meanwhile."""

import asyncio

import pytest

from host.errors import LoadFailed, QueueFull, Unavailable
from host.placement.inline import InlineHandle
from host.state import State

pytestmark = pytest.mark.anyio


async def test_fifty_first_calls_start_one_load(house):
    house = await house()
    a = house.serve("a", options={"load_seconds": 0.1})
    answers = await asyncio.gather(*(house.call(text=str(n), delay=0.01) for n in range(50)))
    assert [answer.text for answer in answers] == [str(n) for n in range(50)]
    assert a.status().loads == 1
    assert house.states() == ["planning", "loading", "ready"]
    assert (await house.report()).peak == 4  # the capacity, and never more


async def test_calls_and_loads_by_hand_share_one_load(house):
    house = await house()
    a = house.serve("a", placement="inline", options={"load_seconds": 0.1})
    await asyncio.gather(a.load(), house.call(), a.load(), house.call())
    assert a.status().loads == 1
    await a.load()
    assert a.status().loads == 1


async def test_progress_is_told_while_it_loads(house):
    house = await house()
    a = house.serve("a", placement="inline", options={"load_seconds": 0.3, "plan_bytes": 1000})
    call = house.start()
    await house.until(lambda: a.state is State.LOADING and a.status().progress.stage == "weights")
    status = a.status()
    assert (status.bytes, status.plan.slots, status.progress.total > 0) == ({"ram": 1000}, 4, True)
    assert "weights" in a.stage()
    await call
    stages = [event.stage for event in house.told("LoadProgressed")]
    assert list(dict.fromkeys(stages))[:5] == ["resolving", "starting", "planning", "waiting for memory", "loading"]
    done = [event.done for event in house.told("LoadProgressed") if event.stage == "weights"]
    assert len(done) > 3
    assert done == sorted(done)


@pytest.mark.parametrize("moment", ["planning", "loading"])
async def test_a_load_that_nobody_waits_for_is_given_up(house, moment):
    house = await house()
    a = house.serve("a", options={"plan_seconds": 600} if moment == "planning" else {"load_seconds": 600})
    call = house.start()
    await house.until(lambda: a.state == moment)
    await asyncio.sleep(0.05)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await house.until(lambda: a.state is State.COLD)
    assert house.runtime.budget.held() == 0
    assert (a.status().loads, a.status().cooldown_left, a.in_flight, a.waiting) == (0, 0.0, 0, 0)
    assert not workers(house)


async def test_a_load_goes_on_while_one_of_two_still_waits(house):
    house = await house()
    a = house.serve("a", options={"load_seconds": 0.3})
    leaves, stays = house.start(text="leaves"), house.start(text="stays")
    await house.until(lambda: a.state is State.LOADING)
    leaves.cancel()
    assert (await stays).text == "stays"
    assert leaves.cancelled()
    assert (await house.report()).started == 1
    assert house.states() == ["planning", "loading", "ready"]


async def test_a_call_that_comes_while_a_load_is_given_up_starts_the_next_one(house):
    house = await house()
    a = house.serve("a", options={"load_seconds": 0.2, "close_seconds": 0.1})
    for wait in (0.0, 0.01, 0.1):
        first = house.start()
        await house.until(lambda: a.state is State.LOADING)
        first.cancel()
        await asyncio.sleep(wait)
        assert (await house.call(text="second")).text == "second"
        assert house.runtime.budget.held() == a.status().bytes["ram"]
        await a.unload()
        assert house.runtime.budget.held() == 0


async def test_giving_a_load_up_is_not_hurried_by_others_who_come_and_leave(house, monkeypatch):
    """Else the next load would begin beside the old one, and lose its memory when that is gone in the end."""
    house = await house()
    a = house.serve("a", placement="inline", options={"load_seconds": 0.1})
    stop, stopped = InlineHandle.stop, []

    async def slow(link, grace):
        await asyncio.sleep(0.15)
        await stop(link, grace)
        stopped.append(link)

    monkeypatch.setattr(InlineHandle, "stop", slow)
    for _ in range(3):
        first = house.start()
        await house.until(lambda: a.state is State.LOADING)
        first.cancel()
        await asyncio.sleep(0.01)
        other = house.start()
        await asyncio.sleep(0.01)
        other.cancel()
        await asyncio.sleep(0.01)
        assert (await house.call()).text == "x"
        assert stopped
        stopped.clear()
        await asyncio.sleep(0.2)
        assert house.runtime.budget.held() == a.status().bytes["ram"] > 0
        await a.unload()
        stopped.clear()


async def test_a_failed_load_that_is_given_up_is_cleaned_up_before_the_next_one_begins(house, monkeypatch):
    """Else the end of the old one would take the memory of the new one out of the books."""
    house = await house()
    a = house.serve("a", placement="inline", options={"load_oom": 1})
    stop, stopping, may_stop = InlineHandle.stop, [], asyncio.Event()

    async def slow(link, grace):
        stopping.append(link)
        if link is stopping[0]:
            await may_stop.wait()
        await stop(link, grace)

    monkeypatch.setattr(InlineHandle, "stop", slow)
    first = house.start()
    await house.until(lambda: stopping)
    first.cancel()
    await asyncio.sleep(0.01)  # nobody waits now: the cleaning up is interrupted
    second = house.start()
    await asyncio.wait({second}, timeout=0.3)
    may_stop.set()
    assert (await second).text == "x"
    await asyncio.sleep(0.05)
    assert house.runtime.budget.held() == a.status().bytes["ram"] > 0


async def test_unloading_while_it_loads_fails_who_asked_for_the_load(house):
    house = await house()
    a = house.serve("a", placement="inline", options={"load_seconds": 0.3})
    load = asyncio.ensure_future(a.load())
    await house.until(lambda: a.state is State.LOADING)
    assert await a.unload()
    with pytest.raises(Unavailable, match="unload"):
        await load
    await house.until(lambda: a.state is State.COLD)


async def test_unloading_while_it_loads_leaves_the_calls_that_wait_alone(house):
    house = await house()
    a = house.serve("a", placement="inline", options={"load_seconds": 0.2})
    call = house.start()
    await house.until(lambda: a.state is State.LOADING)
    assert not await a.unload()
    assert (await call).text == "x"


async def test_what_cannot_be_planned_or_loaded_says_why(house):
    house = await house()
    house.serve("plan", options={"plan_fails": "no plan"})
    house.serve("load", options={"load_fails": "the disk is on fire"})
    for name, message in (("plan", "no plan"), ("load", "the disk is on fire")):
        with pytest.raises(LoadFailed, match=message):
            await house.call(name)
        status = house.runtime.catalog.find(name).status()
        assert (status.state, status.last_error.code) == (State.FAILED, "load_failed")
        assert message in status.last_error.message
    assert house.runtime.budget.held() == 0
    assert not workers(house)


async def test_every_call_that_waits_gets_the_error_of_the_load(house):
    house = await house()
    house.serve("a", placement="inline", options={"load_seconds": 0.05, "load_fails": "no"})
    errors = await asyncio.gather(*(house.call() for _ in range(9)), return_exceptions=True)
    assert {type(error) for error in errors} == {LoadFailed}
    assert len({id(error) for error in errors}) == 9


async def test_a_file_no_engine_runs_is_the_models_fault_not_the_clients(house, tmp_path):
    house = await house()
    (tmp_path / "model.echo").write_text("x")
    house.serve("a", model="./model.echo")
    (tmp_path / "model.echo").unlink()
    (tmp_path / "model.echo").mkdir()  # a folder now
    error = (await asyncio.gather(house.call(), return_exceptions=True))[0]
    assert error.status in (503, 404), repr(error)


async def test_preload_loads_at_the_start_and_only_what_says_so(house):
    house = await house()
    house.write("a", placement="inline", preload=True)
    house.write("b", placement="inline")
    house.runtime.start(watch=False, warm=False)
    a, b = (house.runtime.catalog.find(name) for name in "ab")
    await house.until(lambda: a.state is State.READY)
    assert b.state is State.COLD
    assert a.status().loads == 1


async def test_a_queue_of_size_zero_still_takes_the_call_that_wakes_it(house):
    house = await house()
    a = house.serve("a", placement="inline", slots=1, queue={"size": 0}, options={"load_seconds": 0.1})
    first = house.start()
    await house.until(lambda: a.state is State.LOADING)
    with pytest.raises(QueueFull):
        await house.call()
    assert (await first).text == "x"


def workers(house):
    placement = house.runtime.registry.placements["process"]
    return [pid for spawner in placement._spawners.values() for pid in spawner._workers]
