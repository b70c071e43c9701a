"""Divides the CPU threads of an instance among the lanes that compute batches in parallel."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

import torch

LANES = 2
"""Batches computed in parallel on a CPU, each on its share of the threads. Threads synchronise after each operation, so
two batches on one core each take less time than one after the other on two, and less still beside other programs."""
EXPRESS = 256
"""Requests of at most this many tokens run at once on one thread while larger ones are being computed."""
_LOCK = threading.Lock()


def lanes(device: torch.device, threads: int) -> int:
    """Return the number of batches computed in parallel."""
    return LANES if device.type == "cpu" and threads >= LANES else 1


def initializer(cores: int) -> Callable[[], None]:
    """Return a function that makes the calling thread compute with `cores` threads, whatever others use."""
    return functools.partial(_start, cores)


def _start(cores: int) -> None:
    # torch keeps one number for the process, and each thread takes it over once, when it is first asked for.
    with _LOCK:
        torch.set_num_threads(cores)
        torch.get_num_threads()
