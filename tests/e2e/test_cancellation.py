"""Clients that leave: queued, loading, in mid-stream, non-streaming, hanging. The work stops and the slot is free."""

import contextlib
import threading
import time

import pytest


@pytest.fixture(scope="module")
def cold(host):
    host.write("loading", options={"load_seconds": 600})
    host.write("planning", options={"plan_seconds": 600})
    host.write("cold", options={"load_seconds": 5})
    host.write("one", slots=1)
    host.until(lambda: all(host.status(name) for name in ("one", "cold", "planning", "loading")))
    return host


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "options", [{"hang": True, "count": 0}, {"text": "1 2 3", "delay": 600}], ids=["hanging", "working"]
)
def test_leaving_while_it_answers(cold, stream, options):
    before = cold.report("a")
    with cold.asking("a", stream=stream, **options):
        cold.until(lambda: cold.report("a")["running"] == 1)
    cold.until(lambda: cold.status("a")["in_flight"] == 0)
    after = cold.report("a")
    assert (after["cancelled"] - before["cancelled"], after["running"]) == (1, 0)


def test_leaving_in_mid_stream(cold):
    before = cold.report("one")
    with cold.open("one", text="1 2 3", delay=0.02, hang=True) as response:
        lines = response.iter_lines()
        next(lines)
        assert cold.status("one")["in_flight"] == 1
    cold.until(lambda: cold.status("one")["in_flight"] == 0)
    assert cold.report("one")["cancelled"] - before["cancelled"] == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["loading", "planning"])
def test_leaving_alone_gives_the_load_up(cold, model, stream):
    tree = set(cold.tree())
    with cold.asking(model, stream=stream):
        cold.until_state(model, model)
    cold.until_state(model, "cold")
    status = cold.status(model)
    assert (status["loads"], status["waiting"], status["in_flight"], status["bytes"]) == (0, 0, 0, {})
    cold.until(lambda: set(cold.tree()) <= tree)


def test_leaving_while_another_waits_lets_the_load_go_on(cold):
    answers = []
    stays = threading.Thread(target=lambda: answers.append(cold.echo("cold", text="stays").json()["text"]))
    with cold.asking("cold", text="leaves"):
        cold.until(lambda: cold.status("cold")["waiting"] == 1)
        stays.start()
        cold.until(lambda: cold.status("cold")["waiting"] == 2)
    stays.join()
    assert answers == ["stays"]
    assert cold.status("cold")["loads"] == 1
    assert cold.report("cold")["started"] == 1
    cold.client.post("/v1/functions/cold/unload")


def test_leaving_the_queue(cold):
    with cold.open("one", hang=True) as running:
        lines = running.iter_lines()
        next(lines)
        with cold.asking("one"):
            cold.until(lambda: cold.status("one")["waiting"] == 1)
        cold.until(lambda: cold.status("one")["waiting"] == 0)
    assert cold.echo("one").status_code == 200


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


def test_sixty_who_leave_leave_nothing_behind(cold):
    before = cold.report("a")
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(cold.asking("a", hang=True))
        cold.until(lambda: (cold.status("a")["in_flight"], cold.status("a")["waiting"]) == (4, 56))
    cold.until(lambda: (cold.status("a")["in_flight"], cold.status("a")["waiting"]) == (0, 0))
    after = cold.report("a")
    assert after["running"] == 0
    assert after["cancelled"] - before["cancelled"] == after["started"] - before["started"]


def test_hosts_with_websockets_do_the_same_over_asgi(start, frames):
    """Without WebSockets the server speaks its own protocol; with them, ASGI."""
    host = start({"a": {}}, granian={"websockets": True})
    answer = host.echo(text="one two")
    assert (answer.status_code, answer.json()["text"]) == (200, "one two")
    assert answer.headers["x-request-id"]
    assert host.client.post("/v1/echo", json={"model": "a", "count": -1}).status_code == 400
    assert host.client.get("/livez").status_code == 200
    with host.open(text="a b") as response:
        assert [event["text"] for event in frames(response) if "text" in event] == ["a", " b"]
    for stream in (False, True):
        with host.asking("a", stream=stream, hang=True, count=0):
            host.until(lambda: host.report("a")["running"] == 1)
        host.until(lambda: host.status("a")["in_flight"] == 0)
    assert host.report("a")["cancelled"] == 2
    assert host.stop() == 0
