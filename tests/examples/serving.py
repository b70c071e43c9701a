"""A running `coldframe serve`, as a user starts it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

COLDFRAME = str(Path(sys.executable).with_name("coldframe"))
DEADLINE = 60.0
"""Seconds to wait for what must come: many, because the machine may be slow and busy, and only a failure takes them."""


class Served:
    """A running `coldframe serve`: its URL, its folder of manifests and a client."""

    def __init__(self, manifests: Path, *options: str, **environment: str) -> None:
        self.manifests = manifests
        self.log = manifests.parent / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [COLDFRAME, "serve", "--manifests", str(manifests), *options],
                stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **environment}, cwd=manifests.parent,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " serves http" in line, line + self.log.read_text()
        self.url = line.split()[-1]
        self.client = httpx.Client(base_url=self.url, timeout=DEADLINE)

    def stop(self) -> int:
        """SIGTERM, wait; returns the exit status."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        with contextlib.ExitStack() as stack:
            stack.callback(self.process.kill)
            return self.process.wait(DEADLINE)
