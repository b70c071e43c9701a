"""How the cores that an instance may use are shared among the threads that compute its batches."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import torch

LANES = 2
"""Batches computed side by side on a CPU, each on its share of the cores: threads that meet after each operation wait
for each other, so two batches on a core each take less time than one after the other on two, and less still beside
other programs."""
EXPRESS = 256
"""Tokens of a request up to which it is computed on one core at once while a larger one is being computed."""
_LOCK = threading.Lock()


def lanes(device: torch.device, threads: int) -> int:
    """Return how many batches are computed side by side."""
    return LANES if device.type == "cpu" and threads >= LANES else 1


def initializer(cores: int) -> Callable[[], None]:
    """Return what a thread runs first so that it computes on so many cores, whatever other threads do."""
    return functools.partial(_start, cores)


def _start(cores: int) -> None:
    # torch keeps one number for the process, and each thread takes it over once, when it is first asked for.
    with _LOCK:
        torch.set_num_threads(cores)
        torch.get_num_threads()
