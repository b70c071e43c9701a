"""Runs the tests marked `soak` in rounds of drawn seeds until SOAK_SECONDS are over; a failure names its seed.

Arguments go to pytest. Each round sets SOAK_SEED, one more than the round before; the first is drawn unless it is set.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

SECONDS = 600


def run(seed: int, until: float, arguments: list[str]) -> int:
    """Run one round; returns pytest's exit status."""
    command = [sys.executable, "-m", "pytest", "-m", "soak", "-x", "-q", f"--hypothesis-seed={seed}", *arguments]
    return subprocess.call(command, env={**os.environ, "SOAK_SEED": str(seed), "SOAK_UNTIL": str(until)})


def main() -> int:
    """Run rounds until the time is over; a test that has begun ends by itself."""
    seconds = float(os.environ.get("SOAK_SECONDS") or SECONDS)
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(1 << 31))
    began = time.time()
    until = began + seconds
    rounds = 0
    while time.time() < until:
        print(f"soak: round {rounds + 1}, SOAK_SEED={seed}, {until - time.time():.0f} s left", flush=True)
        status = run(seed, until, sys.argv[1:])
        if status:
            print(f"soak: failed; the same round again: make soak SOAK_SEED={seed}", flush=True)
            return status
        rounds, seed = rounds + 1, seed + 1
    print(f"soak: {rounds} rounds in {time.time() - began:.0f} s without a failure", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
