"""The end: streams may finish, others are told, nothing is left behind, and death of the host is death of all."""

import os
import signal
import threading
import time

import httpx
import pytest

LONG = {"grace": 60.0, "drain": 60.0, "stop": 60.0}
"""Bounds that nothing may wait for: what ends in half the time has not."""


def test_an_idle_host_ends_at_once_and_leaves_nothing(start):
    host = start({"a": {}, "b": {}}, **LONG)
    host.echo("a")
    host.echo("b")
    tree = host.tree()
    assert len(tree) == 4  # host, forkserver, two workers
    began = time.monotonic()
    assert host.stop() == 0
    assert time.monotonic() - began < 30
    host.until_gone(tree)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_streams_finish_within_the_grace_time(start, frames, number):
    host = start({"a": {}}, grace=60.0)
    with host.open(text="1 2 3 4 5", delay=0.2) as response:
        got = frames(response)
        next(got)
        host.process.send_signal(number)
        assert [frame["text"] for frame in got if "text" in frame] == [" 2", " 3", " 4", " 5"]
    assert host.stop() == 0


def test_answers_finish_within_the_grace_time(start):
    host = start({"a": {}}, grace=60.0)
    host.echo()
    answers = []
    call = threading.Thread(target=lambda: answers.append(host.echo(text="1 2 3", delay=1.5).json()["text"]))
    call.start()
    host.until(lambda: host.status("a")["in_flight"] == 1)
    assert host.stop() == 0
    call.join()
    assert answers == ["1 2 3"]


def test_streams_that_do_not_finish_are_ended_in_band(start, frames):
    host = start({"a": {}}, grace=0.5, drain=60.0, stop=60.0)
    with host.open(text="1 2", hang=True) as response:
        got = frames(response)
        next(got)
        began = time.monotonic()
        host.process.send_signal(signal.SIGTERM)
        rest = list(got)
    assert 0.25 < time.monotonic() - began < 30
    assert rest[-2]["error"]["code"] == "shutting_down"
    assert rest[-1] == "[DONE]"
    assert host.stop() == 0


def test_answers_that_do_not_finish_are_503(start):
    host = start({"a": {}}, grace=0.3)
    host.echo()
    got = []
    call = threading.Thread(target=lambda: got.append(host.echo(hang=True)))
    call.start()
    host.until(lambda: host.status("a")["in_flight"] == 1)
    assert host.stop() == 0
    call.join()
    assert (got[0].status_code, got[0].json()["error"]["code"]) == (503, "shutting_down")


def test_new_calls_are_refused_meanwhile_and_readiness_is_gone(start, frames):
    host = start({"a": {}}, grace=60.0)
    with host.open(text="1", hang=True) as response:
        got = frames(response)
        next(got)
        host.process.send_signal(signal.SIGTERM)
        host.until(lambda: host.client.get("/readyz").status_code == 503)
        refused = host.echo()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert "retry-after" in refused.headers
        assert host.client.get("/livez").status_code == 200
        assert host.client.post("/v1/functions/a/load").status_code == 503
        assert host.status("a")["in_flight"] == 1  # what ran before runs on
    assert host.stop() == 0


def test_readers_of_events_do_not_hold_it_up(start):
    host = start({"a": {}}, **LONG)
    with httpx.stream("GET", f"{host.url}/v1/functions/events", timeout=60) as response:
        lines = response.iter_lines()
        next(lines)
        began = time.monotonic()
        assert host.stop() == 0
        assert time.monotonic() - began < 30
        list(lines)


@pytest.mark.parametrize("stage", ["plan_seconds", "load_seconds"])
def test_a_load_under_way_is_given_up(start, stage):
    host = start({"a": {"options": {stage: 600}}}, grace=0.2)
    call = threading.Thread(target=host.echo)
    call.start()
    host.until_state("a", stage.split("_")[0] + ("ning" if stage.startswith("plan") else "ing"))
    tree = host.tree()
    assert host.stop() == 0
    call.join()
    host.until_gone(tree)


def test_a_deaf_worker_does_not_hold_it_up(start):
    host = start({"a": {"options": {"deaf": True}}}, **(LONG | {"stop": 0.5}))
    host.echo()
    tree = host.tree()
    began = time.monotonic()
    assert host.stop() == 0
    assert time.monotonic() - began < 30
    host.until_gone(tree)


def test_a_killed_host_takes_everybody_with_it(start):
    host = start({"a": {}, "b": {"options": {"deaf": True}}, "c": {"options": {"load_seconds": 600}}})
    host.echo("a")
    host.echo("b")
    threading.Thread(target=ask_in_vain, args=(host, "c")).start()
    host.until_state("c", "loading")
    tree = host.tree()
    assert len(tree) == 5
    os.kill(host.process.pid, signal.SIGKILL)
    host.process.wait()
    host.until_gone(tree)


def test_a_busy_worker_dies_with_a_forkserver_and_a_host_that_are_killed(start):
    """It cannot see that its socket is closed: the kernel ends it."""
    host = start({"a": {}})
    host.echo("a")
    (worker,) = [function["pid"] for function in host.client.get("/v1/functions").json()["data"]]
    asking = threading.Thread(target=ask_in_vain, args=(host, "a"), kwargs={"block": 600})
    asking.start()
    host.until(lambda: host.status("a")["in_flight"] == 1)
    others = [pid for pid in host.tree() if pid != worker]
    assert len(others) == 2
    for pid in others:
        os.kill(pid, signal.SIGKILL)
    host.process.wait()
    host.until_gone([worker, *others])
    asking.join()


def ask_in_vain(host, model, **options):
    with pytest.raises(httpx.HTTPError):
        host.echo(model, **options)
