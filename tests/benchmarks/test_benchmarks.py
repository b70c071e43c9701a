"""What a benchmark says beside its ratios, and when it reports none."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.neighbours import LOAD, Neighbours, busy_process


def test_no_ratio_is_reported_beside_other_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmarks, "load_before", lambda: LOAD + 0.1)
    monkeypatch.setattr(benchmarks.importlib, "import_module", lambda name: pytest.fail(f"{name} was measured"))
    assert benchmarks.main(["start", "cold"]) == 3
    shown = capsys.readouterr().out
    assert shown.count("not measured") == 2
    assert "other programs took 0.4 cores before it began" in shown


def test_the_processor_is_named() -> None:
    found = benchmarks.machine()
    for instructions in ("AMX", "AVX-512", "bf16", "VNNI"):
        assert f"with {instructions}" in found or f"without {instructions}" in found
    assert f"{len(os.sched_getaffinity(0))} cores" in found


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="neighbours are seen on Linux")
def test_a_busy_process_is_seen_unless_it_is_named() -> None:
    with busy_process() as pids:
        time.sleep(0.2)
        alone, named = Neighbours([]), Neighbours([*pids])
        time.sleep(0.5)
        assert alone.cores() - named.cores() > LOAD
