"""How much of the processor others took while something was measured: what makes a row say little, or nothing.

It reads Linux's `/proc`; elsewhere it sees nobody.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


class Neighbours:
    """From its making on, the cores that were busy with anything but these processes."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = [*pids, os.getpid()]
        self._began = time.perf_counter()
        self._before = self._others()

    def cores(self) -> float:
        """Return how many cores, on average."""
        seconds = time.perf_counter() - self._began
        return max(0.0, (self._others() - self._before) / seconds) if seconds else 0.0

    def _others(self) -> float:
        """Return the seconds of processor time that were not ours."""
        try:
            words = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
            busy = sum(map(int, words)) - int(words[3]) - int(words[4])
            return (busy - sum(_used(pid) for pid in self._pids)) / _TICKS
        except OSError:
            return 0.0


def _used(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


LOAD = 0.3
"""Cores that others may use before a benchmark begins; with more, its ratios would be of no use."""
_SECONDS, _PATIENCE = 3.0, 60.0


def load_before() -> float:
    """Return the cores that other processes use, over a few seconds; waits up to a minute for at most `LOAD`."""
    until = time.monotonic() + _PATIENCE
    while True:
        neighbours = Neighbours([])
        time.sleep(_SECONDS)
        load = neighbours.cores()
        if load <= LOAD or time.monotonic() > until:
            return load


@contextlib.contextmanager
def busy_process() -> Iterator[tuple[int]]:
    """Run a process that computes without end; yields its id."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield (process.pid,)
    finally:
        process.kill()
        process.wait()
