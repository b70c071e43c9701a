"""Chooses GOMP_SPINCOUNT: for how many rounds OpenMP threads wait for each other by spinning before they sleep.

Threads meet after every operation of a model, a thousand times a step. Those that sleep at once are woken each time;
those that spin on and on starve everybody else. Spinning for as long as a wake-up takes costs at most twice the best
choice, whatever the wait (Karlin et al., "Competitive randomized algorithms for nonuniform problems", 1990). Both times
differ between machines by a factor of twenty, so they are measured, in processes of their own, and kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from functions.engines.model_cache import ModelCache
from functions.engines.processor import processor

DEFAULT = 5000
"""Rounds where nothing can be measured: without libgomp, or on one core."""
LEAST, MOST = 50e-6, 500e-6
"""Seconds to spin at least and at most: a measurement beside busy programs exaggerates."""
_ROUNDS = 20_000
_TIMEOUT = 5.0
_PROBE = Path(__file__).with_name("openmp_probe.py")


def environment() -> dict[str, str]:
    """Return what the environment lacks before libgomp is loaded; nothing where it says how threads wait."""
    if "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        return {}
    return {"GOMP_SPINCOUNT": str(spin_count())}


def spin_count() -> int:
    """Return the rounds for this processor, measured at the first call (0.2 s) and kept on disk."""
    found = processor()
    if found.cores == 1 or not sys.platform.startswith("linux"):
        return DEFAULT
    cache = ModelCache("openmp", Path(sys.executable), found.fingerprint)
    kept = cache.get("spin")
    if kept is None:
        round_time, wake_time = _probe("round", _ROUNDS), _probe("wake", 0)
        if round_time is None or wake_time is None:
            return DEFAULT
        kept = {"rounds": rounds(round_time, wake_time), "round_seconds": round_time, "wake_seconds": wake_time}
        cache.put("spin", kept)
        cache.save()
    return int(kept["rounds"])


def rounds(round_time: float, wake_time: float) -> int:
    """Return how many rounds take as long as a thread needs to sleep and be woken; both times in seconds."""
    return max(1, round(min(max(wake_time, LEAST), MOST) / round_time))


def _probe(what: str, spin: int) -> float | None:
    """Return seconds of one round or of one sleep and wake-up; None where libgomp cannot be measured."""
    variables = {**os.environ, "GOMP_SPINCOUNT": str(spin), "OMP_NUM_THREADS": "2"}
    try:
        done = subprocess.run(  # noqa: S603 - our own file
            [sys.executable, "-S", "-E", "-s", str(_PROBE), what, str(spin)],
            capture_output=True,
            timeout=_TIMEOUT,
            env=variables,
            check=True,
        )
        return float(done.stdout) or None
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
