"""`coldframe serve` for real: what it prints, what it refuses, and how it ends."""

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest


def get(url):
    with urllib.request.urlopen(url, timeout=60) as response:
        return json.loads(response.read())


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def ready(serving):
    try:
        return get(f"{serving.url}/readyz") == {"status": "ok"}
    except urllib.error.HTTPError:
        return False


def free_port():
    """A port that no outgoing connection is given meanwhile, as one of the kernel's own choice could be."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


class Stream:
    """One call in flight: an echo that hangs after its first word."""

    def __init__(self, url, **options):
        place = urlsplit(url)
        self._connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
        body = json.dumps({"model": "a", "text": "word", "stream": True, **options})
        self._connection.request("POST", "/v1/echo", body, {"content-type": "application/json"})
        self._response = self._connection.getresponse()
        assert self._response.status == 200
        assert b"word" in self._response.readline()
        self.rest = None
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        try:
            self.rest = self._response.read()
        except (OSError, http.client.HTTPException) as error:
            self.rest = error

    def end(self):
        """Return the bytes that followed, or how the connection broke."""
        self._reader.join(60)
        assert not self._reader.is_alive()
        self._connection.close()
        return self.rest


# ------------------------------------------------------------------------------------------------ what it serves


def test_prints_the_url_and_what_is_served_and_ends_well(serve, manifests, mark):
    manifests.write("a")
    (manifests.path / "bad.yaml").write_text("task: echo\nmodle: x\n")
    serving = serve("--port", "0", env=mark.env)
    text = serving.greeting()
    assert "a     echo  echo    process    package:coldframe_echo/model.echo" in text
    assert "Not served: bad.yaml:2: " in text
    assert get(f"{serving.url}/livez") == {"status": "ok"}
    assert [d["name"] for d in get(f"{serving.url}/v1/functions")["data"]] == ["a"]
    assert serving.end(signal.SIGINT) == 0
    assert mark.gone()
    lines = [json.loads(line) for line in serving.errors.splitlines()]
    assert "stopping" in [line["event"] for line in lines], "logs are JSON where nobody looks"


def test_an_empty_folder_is_served_and_watched(serve, manifests):
    serving = serve("--port", "0")
    assert "no manifest in manifests yet" in serving.greeting()
    manifests.write("late")
    until(lambda: get(f"{serving.url}/v1/functions")["data"])
    assert serving.end() == 0


def test_only_serves_one_by_its_alias(serve, manifests):
    manifests.write("a")
    manifests.write("b", aliases=["bee"])
    serving = serve("--port", "0", "--only", "bee")
    serving.greeting()
    assert [d["name"] for d in get(f"{serving.url}/v1/functions")["data"]] == ["b"]
    assert serving.end() == 0


@pytest.mark.parametrize("said", ["environment", "config", "option"])
def test_the_port_is_the_options_then_the_configs_then_the_environments(serve, manifests, elsewhere, said):
    port, args = free_port(), []
    env = {"PORT": str(port) if said == "environment" else "1"}
    if said == "config":
        (elsewhere / "granian.toml").write_text(f"[host]\nport = {port}\n")
    elif said == "option":
        (elsewhere / "granian.toml").write_text("[host]\nport = 1\n")
        args = ["--port", port]
    serving = serve(*args, env=env)
    serving.greeting()
    assert serving.url == f"http://127.0.0.1:{port}"
    assert serving.end() == 0


def test_other_machines_are_let_in_with_a_warning(serve, manifests):
    serving = serve("--port", "0", "--host", "0.0.0.0")
    serving.greeting()
    assert get(f"{serving.url}/livez") == {"status": "ok"}
    assert serving.end() == 0
    assert "WARNING: 0.0.0.0 can be reached from other machines, and there is no authentication yet" in serving.errors


# ------------------------------------------------------------------------------------------------ what it refuses


def refused(result):
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("coldframe: ")
    return line


def test_a_taken_port_is_one_line(shell, manifests):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused(shell("serve", "--port", port))
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in line


def exits(result, words):
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    return result.stderr


def test_only_what_no_manifest_has_is_refused_with_what_there_is(run, manifests):
    manifests.write("a", aliases=["b"])
    (manifests.path / "bad.yaml").write_text("task: echo\nmodle: x\n")
    told = exits(
        run("serve", "--only", "bad"), "--only: no manifest is named `bad`; there are: a; not usable: bad.yaml:2"
    )
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--manifests", "nowhere"], "--manifests: no such file or folder: nowhere"),
        (["--config", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["--host", "example.org"], "expected an IP address such as 127.0.0.1 or 0.0.0.0"),
        (["--port", "65536"], "65536 is not in the range"),
        (["--port", "http"], "'http' is not a valid integer"),
        (["--ony", "x"], "'--only'"),
    ],
)
def test_a_wrong_option_is_refused(run, args, words):
    exits(run("serve", *args), words)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[host]\nprot = 1\n", "granian.toml: host.prot: unknown key; did you mean `port`?"),
        ("[host]\nmanifests = 'nowhere'\n", "host.manifests: no such file or folder"),
        ("[granian]\nworkers = 2\n", "granian.workers: unknown key"),
        ("[host\n", "is not TOML"),
    ],
)
def test_a_wrong_config_is_refused(run, elsewhere, config, words):
    (elsewhere / "granian.toml").write_text(config)
    assert len(exits(run("serve"), words).splitlines()) == 1


def test_a_wrong_port_in_the_environment_is_refused(run, monkeypatch):
    monkeypatch.setenv("PORT", "http")
    exits(run("serve"), "PORT: expected a whole number from 0 to 65535")


def test_a_certificate_that_is_none_is_refused(run, manifests, elsewhere):
    (elsewhere / "pem").write_text("not a certificate")
    (elsewhere / "granian.toml").write_text("[host]\nport = 0\n[granian]\nssl_cert = 'pem'\nssl_key = 'pem'\n")
    exits(run("serve"), "the server cannot start with these settings")


# ------------------------------------------------------------------------------------------------ how it ends


@pytest.mark.slow
def test_a_first_signal_lets_streams_end(serve, manifests, mark):
    manifests.write("a")
    serving = serve("--port", "0", env=mark.env)
    serving.greeting()
    stream = Stream(serving.url, count=5, delay=0.2)
    serving.process.send_signal(signal.SIGINT)
    assert stream.end().rstrip().endswith(b"[DONE]")
    assert serving.wait() == 0
    assert mark.gone()


@pytest.mark.slow
def test_a_second_interrupt_ends_at_once(serve, manifests, mark):
    manifests.write("a")
    serving = serve("--port", "0", env=mark.env)
    serving.greeting()
    stream = Stream(serving.url, hang=True)
    serving.process.send_signal(signal.SIGINT)
    until(lambda: not ready(serving))  # it heard the first one: two that come together are one
    assert serving.process.poll() is None, "the stream hangs, and may for 30 s"
    began = time.monotonic()
    serving.process.send_signal(signal.SIGINT)
    assert serving.wait() == 130
    assert time.monotonic() - began < 15
    assert b"[DONE]" not in (stream.end() if isinstance(stream.end(), bytes) else b"")
    assert mark.gone(), "workers and forkservers end with their host"


@pytest.mark.slow
def test_the_grace_time_bounds_the_end(serve, manifests, elsewhere, mark):
    (elsewhere / "granian.toml").write_text("[host]\ngrace = '300ms'\n")
    manifests.write("a")
    serving = serve("--port", "0", env=mark.env)
    serving.greeting()
    stream = Stream(serving.url, hang=True)
    began = time.monotonic()
    assert serving.end() == 0
    assert time.monotonic() - began < 20  # and not the 30 s that are the default
    assert b"shutting_down" in stream.end()
    assert mark.gone()
