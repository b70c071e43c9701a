"""The command line: in this process by click's runner, and for real in subprocesses, with one host for many tests."""

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner

from host import cli, telemetry

COLDFRAME = [sys.executable, "-c", "from host.cli import main; main()"]
ECHO = "package:coldframe_echo/model.echo"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Every test has a working directory of its own, and no environment that names a host."""
    place = tmp_path / "cwd"
    place.mkdir()
    monkeypatch.chdir(place)
    for name in ("PORT", "COLDFRAME_URL"):
        monkeypatch.delenv(name, raising=False)
    return place


@pytest.fixture
def run(monkeypatch):
    """Runs a command in this process, its log switched off: a logger would keep one run's standard error for ever."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    monkeypatch.setattr(telemetry, "set_up_logging", lambda *_: None)
    yield lambda *args, stdin=None: CliRunner().invoke(
        cli.group, [str(arg) for arg in args], input=stdin, prog_name="coldframe"
    )
    structlog.configure(**before)


@pytest.fixture
def manifests(elsewhere):
    """A folder `manifests` in the working directory, and how to write one."""
    return Folder(elsewhere / "manifests")


class Folder:
    """Manifests of the echo function."""

    def __init__(self, path):
        self.path = path
        path.mkdir(exist_ok=True)

    def write(self, stem, **keys):
        file = self.path / f"{stem}.yaml"
        file.write_text(json.dumps({"task": "echo", "model": ECHO, **keys}))
        return file


class Serving:
    """A real `coldframe serve`."""

    def __init__(self, *args, env=None, cwd=None):
        self.process = subprocess.Popen(
            [*COLDFRAME, "serve", *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )
        self.errors = ""
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def _read_errors(self):
        self.errors = self.process.stderr.read()

    def greeting(self):
        """Return what is printed when the host is ready, up to the empty line at its end."""
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if not line.strip() and len(lines) > 2:
                break
        text = "".join(lines)
        assert " serves http" in text, self.end() or self.errors
        self.url = re.search(r"https?://\S+", text)[0]
        return text

    def end(self, number=signal.SIGTERM):
        """Stop it; returns the exit status."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.wait()

    def wait(self):
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join(60)
        self.process.stdout.close()
        return status


@pytest.fixture
def shell(elsewhere):
    """Runs the real command in a process of its own, to its end or, with `wait=False`, only to its start."""
    begun = []

    def begin(*args, wait=True, env=None, **keys):
        command = [*COLDFRAME, *map(str, args)]
        keys = {"env": {**os.environ, **(env or {})}, "text": True, **keys}
        if wait:
            return subprocess.run(command, capture_output=True, timeout=180, **keys)
        begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **keys))
        return begun[-1]

    yield begin
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def serve():
    """Starts real hosts; those that still run at the end are killed."""
    begun = []

    def begin(*args, **keys):
        begun.append(Serving(*args, **keys))
        return begun[-1]

    yield begin
    for serving in begun:
        if serving.process.poll() is None:
            serving.process.kill()
            serving.wait()


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """One running host with echo manifests, for tests that only ask it."""
    folder = Folder(tmp_path_factory.mktemp("served") / "manifests")
    folder.write("echo", aliases=["parrot"], idle="never", options={"load_seconds": 2.0, "hoard_bytes": 5_000_000})
    folder.write("org-model", name="org/model")
    folder.write("sick", options={"load_fails": "the weights are stale"})
    (folder.path / "broken.yaml").write_text("task: echo\nmodle: x\n")
    serving = Serving("--manifests", folder.path, "--port", "0")
    serving.greeting()
    yield serving
    assert serving.end() == 0


class Mark:
    """A word in the environment of a process, by which all that it starts can be found, orphans too."""

    def __init__(self):
        self.word = f"COLDFRAME_TEST_MARK={uuid.uuid4().hex}"
        self.env = dict([self.word.split("=")])

    def pids(self):
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if self.word.encode() in environ.read_bytes().split(b"\0"):
                    found.append(int(environ.parent.name))
        return found

    def gone(self):
        """Whether none of them is left, after a minute at most: it takes that long only when one stays."""
        until = time.monotonic() + 60
        while self.pids() and time.monotonic() < until:
            time.sleep(0.05)
        return not self.pids()


@pytest.fixture
def mark():
    return Mark()
