"""Clients that leave: queued, loading, in mid-stream, non-streaming, hanging. The work stops and the slot is free."""

import threading
import time

import httpx
import pytest


def leave(host, model, after=0.1, **knobs):
    """Ask, and go away after so many seconds without an answer."""
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{host.url}/v1/echo", json={"model": model, "text": "x", **knobs}, timeout=httpx.Timeout(5, read=after)
        )


@pytest.fixture(scope="module")
def cold(host):
    host.write("cold", options={"load_seconds": 1.5})
    host.write("planning", options={"plan_seconds": 1.5})
    host.write("one", slots=1)
    host.until(lambda: host.status("one") and host.status("cold") and host.status("planning"))
    return host


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "knobs", [{"hang": True, "count": 0}, {"text": "1 2 3", "delay": 5}], ids=["hanging", "working"]
)
def test_leaving_while_it_answers(cold, stream, knobs):
    before = cold.report("one")
    leave(cold, "one", stream=stream, **knobs)
    cold.until(lambda: cold.status("one")["in_flight"] == 0, timeout=1.0)
    after = cold.report("one")
    assert (after["cancelled"] - before["cancelled"], after["running"]) == (1, 0)


def test_leaving_in_mid_stream(cold):
    before = cold.report("one")
    with cold.open("one", text="1 2 3", delay=0.02, hang=True) as response:
        lines = response.iter_lines()
        next(lines)
        assert cold.status("one")["in_flight"] == 1
    cold.until(lambda: cold.status("one")["in_flight"] == 0, timeout=1.0)
    assert cold.report("one")["cancelled"] - before["cancelled"] == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["cold", "planning"])
def test_leaving_alone_gives_the_load_up(cold, model, stream, alive):
    tree = set(cold.tree())
    leave(cold, model, after=0.25, stream=stream)
    cold.until_state(model, "cold", timeout=1.5)
    status = cold.status(model)
    assert (status["loads"], status["waiting"], status["in_flight"], status["bytes"]) == (0, 0, 0, {})
    cold.until(lambda: set(cold.tree()) <= tree, timeout=2.0)


def test_leaving_while_another_waits_lets_the_load_go_on(cold):
    answers = []
    stays = threading.Thread(target=lambda: answers.append(cold.echo("cold", text="stays").json()["text"]))
    stays.start()
    leave(cold, "cold", after=0.25)
    stays.join()
    assert answers == ["stays"]
    assert cold.status("cold")["loads"] == 1
    assert cold.report("cold")["started"] == 1
    cold.client.post("/v1/functions/cold/unload")


def test_leaving_the_queue(cold):
    with cold.open("one", hang=True) as running:
        lines = running.iter_lines()
        next(lines)
        started = threading.Thread(target=leave, args=(cold, "one", 0.3))
        started.start()
        cold.until(lambda: cold.status("one")["waiting"] == 1)
        started.join()
        cold.until(lambda: cold.status("one")["waiting"] == 0, timeout=1.0)
    before = time.monotonic()
    assert cold.echo("one").status_code == 200
    assert time.monotonic() - before < 1.0


def test_leaving_before_the_body_is_complete(cold):
    import socket

    address = cold.url.removeprefix("http://").split(":")
    for _ in range(5):
        with socket.create_connection((address[0], int(address[1]))) as raw:
            raw.sendall(
                b"POST /v1/echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
            )
            time.sleep(0.02)
    time.sleep(0.1)
    assert cold.echo().status_code == 200
    assert not [line for line in cold.log if '"level": "error"' in line and "echo plug-in" not in line]


def test_a_hundred_who_leave_leave_nothing_behind(cold):
    before = cold.report("a")
    threads = [
        threading.Thread(target=leave, args=(cold, "a", 0.2 + n / 400), kwargs={"hang": True}) for n in range(60)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cold.until(lambda: cold.status("a")["in_flight"] == 0 and cold.status("a")["waiting"] == 0)
    after = cold.report("a")
    assert after["running"] == 0
    assert after["cancelled"] - before["cancelled"] == after["started"] - before["started"]
