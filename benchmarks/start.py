"""How soon the host answers, and what it weighs while nothing is loaded and no forkserver was started."""

from __future__ import annotations

import statistics
import time

from benchmarks.host import MINILM, SMOLLM2, pss, serving
from benchmarks.table import Row

RUNS = 5


def measure() -> list[Row]:
    """Start the host over the two shipped models a few times; weigh one that serves nothing yet."""
    seconds = []
    for _ in range(RUNS):
        with serving({"smollm2-135m": SMOLLM2, "all-minilm-l6-v2": MINILM}) as host:
            seconds.append(host.ready_seconds)
    with serving({}) as host:
        time.sleep(1.0)
        weight = pss([host.process.pid])
    return [
        Row("host ready: start to first 200 of /livez", statistics.median(seconds), "s", 1.0),
        Row("idle host, without forkservers", weight, "MB", 100.0),
    ]
