"""Measures libgomp in a process of its own: `python openmp_probe.py round|wake ROUNDS` prints seconds.

`round` is the processor time of one round of spinning, `wake` the time of a parallel region whose threads were asleep.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

_TRIES = 12
_APART = 0.003
"""Seconds between regions: longer than any thread spins."""


def region() -> Callable[[], None]:
    """Return a function that runs an empty parallel region of two threads. Raises `OSError` without libgomp."""
    gomp = ctypes.CDLL("libgomp.so.1")
    nothing = ctypes.cast(gomp.omp_get_num_threads, ctypes.c_void_p)
    gomp.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    return lambda: gomp.GOMP_parallel(nothing, None, 2, 0)


def round_seconds(run: Callable[[], None], rounds: int) -> float:
    """Return the processor seconds of one round: what the other thread uses after a region, by the rounds it spins."""
    used = []
    for _ in range(_TRIES):
        before = _others()
        run()
        time.sleep(_APART)
        used.append(_others() - before)
    return sorted(used)[len(used) // 4] / rounds


def wake_seconds(run: Callable[[], None]) -> float:
    """Return the seconds of a region that wakes a sleeping thread and waits for it."""
    took = []
    for _ in range(_TRIES):
        time.sleep(_APART)
        began = time.perf_counter()
        run()
        took.append(time.perf_counter() - began)
    return sorted(took)[len(took) // 4]


def _others() -> float:
    """Return the processor seconds of all threads but the first."""
    own = str(os.getpid())
    tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != own]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


if __name__ == "__main__":
    runs = region()
    runs()
    print(round_seconds(runs, int(sys.argv[2])) if sys.argv[1] == "round" else wake_seconds(runs))
