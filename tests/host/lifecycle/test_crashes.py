"""Processes that die: their own calls fail and say how, nobody else's do, and the next call loads anew."""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from host.errors import ColdframeError, InstanceDied, LoadFailed, OutOfMemory
from host.state import State

pytestmark = pytest.mark.anyio
WAYS = [("segv", "SIGSEGV"), ("abort", "SIGABRT"), ("kill", "SIGKILL"), (7, "exit status 7"), (0, "exit status 0")]


@pytest.mark.parametrize(("crash", "how"), WAYS)
async def test_a_death_in_mid_stream_fails_its_own_calls_and_no_others(house, crash, how):
    house = await house()
    a, b = house.serve("a"), house.serve("b")
    await asyncio.gather(a.load(), b.load())
    bystander = house.start("b", text="1 2 3 4 5", delay=0.1)
    fellow = house.start("a", hang=True)
    await house.until(lambda: a.in_flight == 1)
    got = []
    with pytest.raises(InstanceDied, match=how):
        async for event in house.stream("a", text="1 2 3 4", delay=0.02, crash_after=2, crash=crash):
            got.append(event.text)
    assert got[0] == "1"  # what it had sent before it died arrived
    with pytest.raises(InstanceDied, match=how):
        await fellow
    assert (await house.call("a", text="again")).text == "again"
    assert (await bystander).text == "1 2 3 4 5"
    assert (a.status().loads, b.status().loads, a.in_flight) == (2, 1, 0)
    assert (a.status().last_error.code, how in a.status().last_error.message) == ("instance_died", True)
    assert [event.how for event in house.told("Died")] == [how]
    assert house.runtime.budget.held() == sum(d.status().bytes["ram"] for d in (a, b))


@pytest.mark.parametrize(("crash", "how"), WAYS)
@pytest.mark.parametrize("moment", ["plan_crash", "load_crash"])
async def test_a_death_while_it_comes_up_fails_the_load(house, moment, crash, how):
    house = await house()
    a = house.serve("a", options={moment: crash})
    with pytest.raises(LoadFailed, match=how) as caught:
        await house.call()
    killed_loading = (moment, crash) == ("load_crash", "kill")
    assert type(caught.value) is (OutOfMemory if killed_loading else LoadFailed)
    assert (a.state, a.status().last_error.code) == (State.FAILED, caught.value.code)
    assert house.runtime.budget.held() == 0
    assert house.states() == ["planning", "failed"] if moment == "plan_crash" else a.status().loads == 0


async def test_an_idle_death_is_noticed_and_the_next_call_loads_anew(house):
    house = await house()
    a = house.serve("a")
    await a.load()
    os.kill(a.status().pid, signal.SIGKILL)
    await house.until(lambda: a.state is State.COLD)
    assert house.runtime.budget.held() == 0
    assert (await house.call()).text == "x"
    assert a.status().loads == 2


async def test_a_call_right_after_an_idle_death_is_answered(house):
    """The host may not know of the death yet; whoever comes then is not to blame."""
    house = await house()
    a = house.serve("a")
    for wait in (0, 0.001, 0.01):
        await a.load()
        os.kill(a.status().pid, signal.SIGKILL)
        await asyncio.sleep(wait)
        with contextlib.suppress(InstanceDied):  # the request may be on its way to one who died meanwhile
            assert (await house.call()).text == "x"
    await a.load()
    link = a._running.link
    os.kill(link.pid, signal.SIGKILL)
    await house.until(lambda: not link.alive)  # from the first sign on, though nobody knows yet how it ended
    assert (await house.call()).text == "x"


async def test_the_last_words_reach_the_client_and_the_tail_the_status(house):
    house = await house()
    a = house.serve("a")
    (bug,) = await asyncio.gather(house.call(error="bug"), return_exceptions=True)
    assert type(bug) is ColdframeError
    assert "ZeroDivision" not in bug.message
    with pytest.raises(InstanceDied) as caught:
        await house.call(crash_after=0)
    assert "Its last words: echo read …/model.echo" in caught.value.message
    await house.until(lambda: a.state is State.COLD)
    log = a.status().last_error.log
    assert "echo read …/model.echo" in log
    assert "ZeroDivision" not in log, "what one call raised is for the host's log alone"


async def test_killed_while_it_loads_is_tried_once_more_with_less(house):
    house = await house()
    a = house.serve("a", options={"load_oom": 1, "load_seconds": 0.05})
    await house.call()
    report = await house.report()
    assert (report.attempt, a.status().slots) == (1, 2)
    assert [event.stage for event in house.told("LoadProgressed")].count("retrying with less memory") == 1
    assert a.status().loads == 1
    assert house.states() == ["planning", "loading", "planning", "loading", "ready"]
    assert house.runtime.budget.held() == a.status().bytes["ram"]


async def test_sigkill_while_it_loads_counts_as_out_of_memory(house):
    house = await house()
    a = house.serve("a", options={"load_seconds": 2.0})
    call = house.start()
    await house.until(lambda: a.state is State.LOADING and a.status().progress.stage == "weights")
    (pid,) = pids(house)
    os.kill(pid, signal.SIGKILL)
    assert (await call).text == "x"
    assert (await house.report()).attempt == 1


async def test_out_of_memory_twice_is_an_error_of_its_own(house):
    house = await house()
    a = house.serve("a", options={"load_oom": 2})
    with pytest.raises(OutOfMemory, match="Attempt 1") as caught:
        await house.call()
    assert (caught.value.status, caught.value.code) == (503, "out_of_memory")
    assert caught.value.retry_after == 10
    assert a.state is State.FAILED
    assert house.runtime.budget.held() == 0


async def test_a_killed_forkserver_takes_its_workers_but_no_later_call(house):
    house = await house()
    a = house.serve("a")
    await a.load()
    pid, (spawner,) = a.status().pid, house.runtime.registry.placements["process"]._spawners.values()
    hanging = house.start(hang=True)
    await house.until(lambda: a.in_flight == 1)
    os.kill(spawner._process.pid, signal.SIGKILL)
    with pytest.raises(InstanceDied):
        await hanging
    assert (await house.call()).text == "x"
    await house.until(lambda: not alive(pid))


async def test_a_load_right_after_the_forkserver_was_killed_works(house):
    house = await house()
    a = house.serve("a")
    await a.load()
    await a.unload()
    (spawner,) = house.runtime.registry.placements["process"]._spawners.values()
    for wait in (0, 0.001, 0.01):
        os.kill(spawner._process.pid, signal.SIGKILL)
        await asyncio.sleep(wait)
        assert (await house.call()).text == "x"
        await a.unload()


async def test_a_deaf_worker_is_killed_with_all_it_started_after_the_deadline(house):
    house = await house(stop=0.4)
    a = house.serve("a", options={"deaf": True})
    await a.load()
    pid = a.status().pid
    began = time.monotonic()
    await a.unload()
    assert 0.4 <= time.monotonic() - began < 30  # it would never end by itself
    assert not alive(pid)
    assert a.state is State.COLD
    assert house.runtime.budget.held() == 0


async def test_a_worker_whose_loop_is_blocked_hurts_only_itself(house):
    house = await house(stop=0.5)
    a, b = house.serve("a"), house.serve("b")
    await asyncio.gather(a.load(), b.load())
    blocked = house.start("a", block=600.0)
    await house.until(lambda: a.in_flight == 1)
    async with asyncio.timeout(60):
        for n in range(20):
            assert (await house.call("b", text=str(n))).text == str(n)
        assert not blocked.done()
        unload = asyncio.ensure_future(a.unload())
        blocked.cancel()
        await unload


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pids(house):
    placement = house.runtime.registry.placements["process"]
    return [pid for spawner in placement._spawners.values() for pid in spawner._workers]


async def test_what_an_instance_started_dies_with_it(house):
    house = await house()
    a = house.serve("a", options={"child": True})
    await a.load()
    status = a.status()
    child = status.detail["child"]
    os.kill(child, 0)
    os.kill(status.pid, signal.SIGKILL)
    await house.until(lambda: not _lives(child))


def _lives(pid: int) -> bool:
    """Whether a process runs; a zombie, which nobody has waited for, does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
