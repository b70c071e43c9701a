"""Real hosts: a process of its own that serves a folder of manifests on a free port, asked over HTTP.

`start` makes a fresh one for a test that breaks or stops it; `host` is one for all tests of a module.
"""

import contextlib
import http.client
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

DEADLINE = 60.0
"""Seconds to wait for what must come: many, because the machine may be slow and busy, and only a failure takes them."""
MODEL = "package:coldframe_echo/model.echo"
LAUNCH = """
import asyncio, json, pathlib, sys
import msgspec, uvloop
from host.http import sse
from host.runtime import Runtime
from host.serve import serve
from host.settings import read
from host.telemetry import set_up_logging

given = json.loads(sys.argv[1])
sse.KEEP_ALIVE = given.pop("keep_alive", sse.KEEP_ALIVE)
only = given.pop("only", None)
given["manifests"] = pathlib.Path(given["manifests"])
set_up_logging("json", "info")
runtime = Runtime(msgspec.structs.replace(read(None), port=0, **given), only=only)
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(serve(runtime, lambda url: print(url, flush=True)))
"""


class HostProcess:
    """A host, its manifests and a client for it."""

    def __init__(self, folder, served, **settings):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        for name, keys in served.items():
            self.write(name, **keys)
        self.log = []
        given = {"manifests": str(folder), "stop": 20.0, "drain": 20.0, "grace": 2.0, "threads": 1, **settings}
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http"), "\n".join(self.log)
        self.client = httpx.Client(base_url=self.url, timeout=DEADLINE)

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line.rstrip())

    def write(self, name, model=MODEL, task="echo", file=None, **keys):
        """Write a manifest as an editor does: to another file, then in the place of the old one."""
        path = self.folder / f"{file or name}.yaml"
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps({"task": task, "model": model, "name": name, **keys}))
        draft.replace(path)

    def echo(self, model="a", **options):
        return self.client.post("/v1/echo", json={"model": model, "text": "x", **options})

    def open(self, model="a", timeout=DEADLINE, **options):
        """Open a stream; a context of its response."""
        body = {"model": model, "text": "x", "stream": True, **options}
        return httpx.stream("POST", f"{self.url}/v1/echo", json=body, timeout=timeout)

    @contextlib.contextmanager
    def asking(self, model="a", path="/v1/echo", **body):
        """Send a request whose answer nobody reads; its client leaves at the end of the context."""
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=DEADLINE)
        connection.request("POST", path, json.dumps({"model": model, **body}), {"content-type": "application/json"})
        try:
            yield
        finally:
            connection.close()

    def report(self, model="a"):
        return self.echo(model, report=True).json()["report"]

    def status(self, name="a"):
        functions = self.client.get("/v1/functions").json()["data"]
        return next((function for function in functions if function["name"] == name), None)

    def until(self, condition):
        """Wait until `condition()` holds; fails, with the end of the log, after `DEADLINE` seconds."""
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, "\n".join(line for line in self.log[-60:] if "v1/functions" not in line)
            time.sleep(0.01)

    def until_state(self, name, state):
        self.until(lambda: (self.status(name) or {}).get("state") == state)

    def until_gone(self, pids):
        """Wait until none of these processes lives."""
        self.until(lambda: not [pid for pid in pids if alive(pid)])

    def tree(self):
        """The pids of the host, its forkservers and their workers."""
        return descendants(self.process.pid)

    def stop(self, timeout=DEADLINE):
        """SIGTERM, wait; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def close(self):
        self.client.close()
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def descendants(pid):
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            state, parent = stat(entry.name)
            if state != "Z":
                parents.setdefault(parent, []).append(int(entry.name))
    found, new = [], [pid]
    while new:
        found += new
        new = [child for parent in new for child in parents.get(parent, [])]
    return found


def alive(pid):
    return stat(pid)[0] != "Z"


def stat(pid):
    """The state of a process and its parent; one that is gone is as good as a zombie."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return "Z", 0
    return state, int(parent)


def frames(response):
    """The events of a stream: parsed JSON, `[DONE]`, or a comment as it is."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            data = line.removeprefix("data: ")
            yield data if data == "[DONE]" else json.loads(data)
        elif line.startswith(":"):
            yield line


@pytest.fixture(name="frames")
def _frames():
    return frames


@pytest.fixture(name="alive")
def _alive():
    return alive


@pytest.fixture
def start(tmp_path):
    """Returns a starter of hosts: `start({"a": {}}, grace=1.0)`; all are stopped at the end."""
    hosts = []

    def start(served, **settings):
        hosts.append(HostProcess(tmp_path / f"manifests{len(hosts)}", served, **settings))
        return hosts[-1]

    yield start
    for host in hosts:
        host.close()


@pytest.fixture(scope="module")
def launch(tmp_path_factory):
    """Returns a starter like `start`, of hosts that all tests of a module share."""
    hosts = []

    def launch(served, **settings):
        hosts.append(HostProcess(tmp_path_factory.mktemp("launched") / "manifests", served, **settings))
        return hosts[-1]

    yield launch
    for host in hosts:
        host.close()


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """One host for the tests of a module that leave it as it was."""
    manifests = {
        "a": {},
        "org/name:Q8_0": {"file": "slashes", "aliases": ["short", "other/alias"]},
        "small-queue": {"slots": 1, "queue": {"size": 1, "wait": "10s"}},
        "impatient": {"slots": 1, "queue": {"size": 9, "wait": "50ms"}},
        "broken": {"options": {"load_fails": "the disk is on fire"}},
        "oom": {"options": {"load_oom": 2}},
        "huge": {"options": {"plan_bytes": 1 << 40}},
        "slow": {"options": {"load_seconds": 3}, "idle": 0},
        "slow-broken": {"options": {"load_seconds": 3, "load_fails": "no luck"}},
    }
    made = HostProcess(tmp_path_factory.mktemp("host"), manifests, keep_alive=0.2, max_body=1 << 20)
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A host over a copy of the shipped manifests, with real models."""
    folder = tmp_path_factory.mktemp("served") / "manifests"
    shutil.copytree(Path(__file__).parents[2] / "manifests", folder)
    made = HostProcess(folder, {})
    yield made
    made.close()
