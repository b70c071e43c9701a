"""`ps`, `load`, `unload` and `run` against a running host: a real one, over HTTP."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

MODULE = [sys.executable, "-c", "from host.cli import main; main()"]


@pytest.fixture
def ask(run, host):
    """Runs a command against the running host."""
    return lambda command, *args, **keys: run(command, *args, "--url", host.url, **keys)


@pytest.fixture
def cold(ask):
    ask("unload", "echo")


def row(ask, name):
    found = json.loads(ask("ps", "--json").stdout)
    return next(status for status in found["data"] if status["name"] == name)


# ------------------------------------------------------------------------------------------------ ps


def test_ps_shows_states_and_what_is_wrong(ask, cold):
    ask("load", "echo")
    ask("load", "sick")
    result = ask("ps")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert re.split(r"\s{2,}", lines[0]) == [
        "NAME", "TASK", "STATE", "PID", "MEMORY", "SLOTS", "IN FLIGHT", "QUEUED", "IDLE LEFT", "PROGRESS",
    ]  # fmt: skip
    rows = {cells[0]: cells for cells in (re.split(r"\s{2,}", line) for line in lines[1:])}
    echo = rows["echo"]
    assert echo[1:3] == ["echo", "ready"]
    assert int(echo[3]) == row(ask, "echo")["pid"]
    assert echo[4:] == ["5.0 MB", "4 x 4096", "0", "0", "never", "-"]
    assert rows["org/model"][2:] == ["cold", "-", "-", "-", "0", "0", "-", "-"]
    assert rows["sick"][2] == "failed"
    assert re.match(r"retry in \S+$", rows["sick"][-1])
    assert any(re.match(r"sick: \S+ ago: the weights are stale \(load_failed\)", line) for line in lines)
    assert any(line.startswith("not served: broken.yaml:2: ") for line in lines)


def test_ps_watch_shows_it_again_until_interrupted(host):
    process = subprocess.Popen([*MODULE, "ps", "--watch", "--url", host.url], stdout=subprocess.PIPE, text=True)
    heads = 0
    for line in process.stdout:
        heads += line.startswith("NAME")
        if heads == 2:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)  # to the end: a reader that is gone would be an error of its own
    assert process.returncode == 0


def test_the_environment_names_the_host(run, host, monkeypatch):
    monkeypatch.setenv("COLDFRAME_URL", host.url)
    assert run("ps").exit_code == 0


@pytest.mark.parametrize("command", [["ps"], ["load", "echo"], ["unload", "echo"], ["run", "echo", "hi"]])
def test_a_host_that_does_not_run_is_told_with_the_url(run, command):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    result = run(*command, "--url", url)
    assert result.exit_code == 1
    assert result.stderr == f"coldframe: no host answers at {url}; `coldframe serve` starts one, --url names another\n"


class Stranger(BaseHTTPRequestHandler):
    status, body = 200, b"<html>"

    def do_GET(self):
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_):
        pass


@pytest.fixture
def stranger():
    """A web server that is no coldframe host."""
    server = HTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("status", "body"), [(200, b"<html>"), (200, b"{}"), (404, b"nothing"), (200, b'{"data": 1}')])
def test_what_is_no_coldframe_host_is_told(run, stranger, monkeypatch, status, body):
    monkeypatch.setattr(Stranger, "status", status)
    monkeypatch.setattr(Stranger, "body", body)
    result = run("ps", "--url", stranger)
    assert result.exit_code == 1
    assert f"what answers at {stranger} is no coldframe host" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_what_speaks_no_http_is_told(run):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def babble():
            connection, _ = server.accept()
            connection.recv(1000)
            connection.sendall(b"220 mail.example.org\r\n")
            connection.close()

        threading.Thread(target=babble, daemon=True).start()
        result = run("ps", "--url", f"http://127.0.0.1:{server.getsockname()[1]}")
    assert result.exit_code == 1
    assert "speaks no HTTP" in result.stderr


# ------------------------------------------------------------------------------------------------ load and unload


def test_load_waits_until_it_is_ready_and_unload_gives_it_back(ask, cold):
    result = ask("load", "parrot")
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch(r"echo is ready, 5\.0 MB, slots 4 x 4096, pid \d+\n", result.stdout)
    assert row(ask, "echo")["state"] == "ready"
    assert ask("unload", "parrot").stdout == "echo is cold\n"
    assert row(ask, "echo")["state"] == "cold"
    assert ask("unload", "echo").stdout == "echo is cold; nothing was loaded\n"


def test_a_name_with_a_slash_is_loaded(ask):
    assert ask("load", "org/model").stdout.startswith("org/model is ready")
    assert ask("unload", "org/model").stdout == "org/model is cold\n"


def test_a_load_that_fails_is_one_line(ask):
    result = ask("load", "sick")
    assert result.exit_code == 1
    assert result.stderr == "coldframe: the weights are stale (load_failed)\n"


@pytest.mark.parametrize("command", ["load", "unload"])
def test_a_name_that_is_not_served_is_told_with_those_that_are(ask, command):
    result = ask(command, "nothing")
    assert result.exit_code == 1
    assert "does not serve `nothing`; it serves: echo, org/model, sick" in result.stderr


def test_load_shows_progress_on_a_terminal(ask, cold, host):
    ours, theirs = os.openpty()
    process = subprocess.Popen([*MODULE, "load", "echo", "--url", host.url], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:
        pass
    finally:
        os.close(ours)
    assert process.wait(60) == 0
    assert re.search(rb"echo: weights \d+/5 MB", shown)
    assert shown.endswith(b"\r\x1b[K"), "the line is gone at the end"


# ------------------------------------------------------------------------------------------------ run


@pytest.mark.parametrize(
    ("args", "output"),
    [
        (["echo", "hello", "out there"], "hello out there\n"),
        (["parrot", "hello", "count=3"], "hello hello hello\n"),
        (["echo", "--json", '{"text": "whole answer"}'], "whole answer\n"),
        (["echo", "text=pairs"], "pairs\n"),
        (["echo", "hi", "--operation", "echo"], "hi\n"),
        (["org/model", "hi"], "hi\n"),
    ],
)
def test_run_asks_the_host(ask, args, output):
    result = ask("run", *args)
    assert (result.exit_code, result.stdout) == (0, output), result.stderr


def test_run_reads_standard_input(ask):
    assert ask("run", "echo", "-", stdin="from afar\n").stdout == "from afar\n"
    assert ask("run", "echo", "--json", "-", stdin='{"text": "json"}').stdout == "json\n"


def test_raw_prints_the_events_as_they_are(ask):
    result = ask("run", "echo", "--raw", "a", "b")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event.get("text") for event in events] == ["a", " b", None]
    assert json.loads(ask("run", "echo", "--raw", "text=a b").stdout)["usage"]["completion_tokens"] == 2


def test_another_operation_is_asked_by_pairs(ask):
    result = ask("run", "echo", "--operation", "echo_once", "text=once")
    assert json.loads(result.stdout)["text"] == "once"
    result = ask("run", "echo", "--operation", "echo_once", "once")
    assert (result.exit_code, "takes no plain words" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["echo", "hi", "error=queue_full"], "(queue_full)"),
        (["echo", "hi", "nope=1"], "unknown field `nope`; "),
        (["echo", "hi", "delay=soon"], "(invalid_request)"),
        (["echo", "hi", "error=bug"], "(server_error)"),
        (["echo", "hi", "--operation", "sing"], "no operation `sing`"),
        (["sick", "hi"], "the weights are stale (load_failed)"),
        (["nothing", "hi"], "does not serve `nothing`; it serves: echo, org/model, sick. With --no-host"),
    ],
)
def test_what_goes_wrong_is_one_line(ask, args, words):
    result = ask("run", *args)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("coldframe: ")
    assert words in line


def test_an_error_in_the_middle_comes_after_what_was_said(ask):
    result = ask("run", "echo", "one two three", "error=out_of_memory", "error_after=2")
    assert result.exit_code == 1
    assert result.stdout == "one two\n"
    assert "(out_of_memory)" in result.stderr


def test_a_host_and_none_cannot_both_be_asked_for(run):
    for args in (["--no-host"], ["--inline"], ["--manifests", "x"]):
        result = run("run", "echo", "hi", "--url", "http://127.0.0.1:1", *args)
        assert result.exit_code == 2
        assert "--url asks a running host" in result.stderr


@pytest.mark.slow
def test_tokens_are_printed_as_they_come_and_ctrl_c_cancels(ask, host):
    command = [*MODULE, "run", "echo", "tick", "count=1000", "delay=0.05", "--url", host.url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout.read(9) == b"tick tick"
    assert row(ask, "echo")["in_flight"] == 1
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.stdout.close()
    until = time.monotonic() + 60
    while row(ask, "echo")["in_flight"]:
        assert time.monotonic() < until, "the host heard of it"
        time.sleep(0.02)
