"""Workers forked from a forkserver: what they are, what they print, how they end, and what is left of them."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import msgspec
import pytest
from coldframe_echo.api import EchoOnce
from coldframe_echo.operations import ECHO_ONCE

from host import wire
from host.errors import ColdframeError, InstanceDied, InvalidRequest, LoadFailed, RequestTooLarge
from host.placement.process.handle import describe
from host.placement.process.log import LogPipe, scrub
from host.placement.process.spawner import Spawner

pytestmark = pytest.mark.anyio


@pytest.fixture
async def spawner():
    made = Spawner("echo", ())
    yield made
    await made.close()


async def fork(spawner, lines=None):
    ours, theirs = socket.socketpair()
    with theirs:
        worker = await spawner.fork(theirs, (lines if lines is not None else []).append)
    assert os.getpgid(worker.pid) == worker.pid  # at once: a signal to the group must find it
    return worker, ours


async def test_each_worker_leads_a_group_of_its_own_and_ends_with_its_socket(spawner):
    a, ours_a = await fork(spawner)
    b, ours_b = await fork(spawner)
    assert os.getpgid(a.pid) == a.pid != os.getpgid(b.pid)
    assert parent(a.pid) == parent(b.pid) == spawner._process.pid
    ours_a.close()
    assert await asyncio.wait_for(a.status, 60) == 0
    assert not b.status.done()
    b.signal(signal.SIGTERM)
    assert await asyncio.wait_for(b.status, 60) == 0
    ours_b.close()
    assert spawner._workers == {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
async def test_the_signal_that_ended_it_is_told(spawner, number):
    worker, ours = await fork(spawner)
    worker.signal(number)
    assert await asyncio.wait_for(worker.status, 60) == -number
    ours.close()


async def test_many_at_once(spawner):
    made = await asyncio.gather(*(fork(spawner) for _ in range(20)))
    assert len({worker.pid for worker, _ in made}) == 20
    for _, ours in made:
        ours.close()
    assert await asyncio.gather(*(asyncio.wait_for(worker.status, 60) for worker, _ in made)) == [0] * 20


async def test_a_fork_that_is_given_up_leaves_no_worker(spawner):
    await close_of(await fork(spawner))
    for _ in range(10):
        asking = asyncio.ensure_future(fork(spawner))
        for _ in range(3):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    async with asyncio.timeout(60):
        while spawner._workers or spawner._asked:
            await asyncio.sleep(0.01)
    assert children(spawner._process.pid) == []


async def test_closing_ends_the_forkserver_and_all_workers(spawner):
    worker, ours = await fork(spawner)
    forkserver = spawner._process.pid
    await spawner.close()
    async with asyncio.timeout(60):
        while (state(worker.pid), state(forkserver)) != ("Z", "Z"):  # gone, or nobody's
            await asyncio.sleep(0.01)
    ours.close()


async def test_a_preload_that_cannot_be_imported_stops_nobody():
    spawner = Spawner("x", ("no.such.module", "json"))
    worker, ours = await fork(spawner)
    assert "no.such.module" not in (worker.log.tail())
    assert "ModuleNotFoundError" in spawner._log.tail()
    ours.close()
    await spawner.close()


async def test_a_forkserver_that_cannot_live_is_an_error_and_not_a_wait(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    spawner = Spawner("x", ())
    for _ in range(5):
        with pytest.raises(LoadFailed, match="forkserver of engine x"):
            await asyncio.wait_for(fork(spawner), 60)
    monkeypatch.undo()
    _, ours = await fork(spawner)  # and it heals
    ours.close()
    await spawner.close()


async def test_secrets_do_not_reach_workers(house, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HARMLESS", "yes")
    house = await house()
    a = house.serve("a")
    await a.load()
    environment = Path(f"/proc/{a.status().pid}/environ").read_text()
    assert "hf_secret" not in environment
    assert "HARMLESS=yes" in environment
    assert "GGML_NO_BACKTRACE=1" in environment


async def test_workers_have_no_descriptor_of_anybody_else(house):
    house = await house()
    a, b = house.serve("a"), house.serve("b")
    await asyncio.gather(a.load(), b.load())
    for deployment in (a, b):
        links = [str(fd.readlink()) for fd in Path(f"/proc/{deployment.status().pid}/fd").iterdir()]
        # Its own wire, and the pair an event loop wakes itself with.
        assert sum(link.startswith("socket:") for link in links) <= 3, links


async def test_what_a_worker_started_ends_with_it(house):
    """A process that outlives its worker, in the worker's group, holding its socket and log."""
    house = await house()
    a = house.serve("a")
    await a.load()
    pid = a.status().pid
    os.kill(pid, signal.SIGKILL)
    await house.until(lambda: not house.runtime.registry.placements["process"]._spawners["echo"]._workers)
    assert group(pid) == []


async def test_a_request_whose_values_nobody_checked_fails_alone(house):
    house = await house()
    a = house.serve("a")
    other = house.start(hang=True)
    await house.until(lambda: a.in_flight == 1)
    with pytest.raises(InvalidRequest, match="delay"):
        await house.call(delay=-1.0)
    assert (await house.call()).text == "x"
    assert (a.status().loads, a.in_flight) == (1, 1)
    other.cancel()


async def test_an_answer_of_the_wrong_type_fails_alone(house):
    house = await house()
    a = house.serve("a")
    await a.load()
    other = house.start(hang=True)
    await house.until(lambda: a.in_flight == 1)
    link = a._running.link
    link._decoders[ECHO_ONCE.name] = msgspec.msgpack.Decoder(int)
    with pytest.raises(ColdframeError, match="could not be read"):
        await house.call()
    assert (a.in_flight, link.alive) == (1, True)
    other.cancel()


async def test_a_request_too_large_for_the_wire_is_413_and_hurts_nobody(house, monkeypatch):
    house = await house()
    a = house.serve("a")
    await a.load()
    monkeypatch.setattr(wire, "FRAME_MAX", 10_000)
    with pytest.raises(RequestTooLarge):
        await house.call(text="x" * 20_000)
    assert (await house.call()).text == "x"
    assert a.in_flight == 0
    assert a._running.link._exchanges == {}


async def test_calls_on_a_link_that_ended_fail_at_once(house):
    house = await house()
    a = house.serve("a")
    await a.load()
    link = a._running.link
    await a.unload()
    with pytest.raises(InstanceDied):
        await asyncio.wait_for(link.call(ECHO_ONCE, EchoOnce(text="x")).next(), 60)
    await link.stop(1.0)  # a second time is no harm


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exit status 0"),
        (7, "exit status 7"),
        (-9, "SIGKILL"),
        (-11, "SIGSEGV"),
        (-64, "SIGRTMAX"),
        (-99, "signal 99"),
    ],
)
def test_endings_in_words(status, words):
    assert describe(status) == words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("File /usr/lib/python3.11/x.py, line 1", "File …/x.py, line 1"),
        ('File "/home/me/my-app/a b.py"', 'File "…/a b.py"'),
        ("no path / here", "no path / here"),
        ("1/2 and/or", "1/2 and/or"),
        ("see /tmp", "see /tmp"),
    ],
)
def test_folders_are_cut_from_what_people_see(text, shown):
    assert scrub(text) == shown


async def test_the_log_is_read_by_lines_and_its_tail_is_bounded():
    lines = []
    pipe, write = await LogPipe.open(lines.append)
    os.write(write, b"one\ntwo")
    os.write(write, b" halves\n\n   \n\xff\xfe\n" + b"x" * 10_000 + b"\n")
    for n in range(100):
        os.write(write, f"line {n}\n".encode())
    os.write(write, b"no end")
    os.close(write)
    await pipe.drained(60)
    assert lines[:2] == ["one", "two halves"]
    assert max(map(len, lines)) <= 4096
    assert pipe.tail().splitlines()[-1] == "no end"
    assert len(pipe.tail()) <= 2000
    assert len(pipe.tail().splitlines()) <= 40


async def close_of(made):
    worker, ours = made
    ours.close()
    await asyncio.wait_for(worker.status, 60)


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children(pid):
    words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in words if state(child) != "Z"]


def group(pgid):
    found = []
    for entry in (path.name for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            if os.getpgid(int(entry)) == pgid and state(entry) != "Z":
                found.append(int(entry))
        except OSError:
            continue
    return found


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
