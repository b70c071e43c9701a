"""How long OpenMP threads spin: the choice, the measurement in a real libgomp, and what is kept of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from functions.engines import openmp_spin

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="libgomp is measured on Linux")


@pytest.mark.parametrize(
    ("round_time", "wake_time", "expected"),
    [
        (25e-9, 100e-6, 4000),
        (50e-9, 100e-6, 2000),
        (1e-9, 100e-6, 100_000),
        (25e-9, 1e-6, 2000),
        (25e-9, 1.0, 20_000),
    ],
    ids=["as long as a wake-up", "slow pause", "fast pause", "at least 50 us", "at most 500 us"],
)
def test_threads_spin_as_long_as_a_wake_up_takes(round_time: float, wake_time: float, expected: int) -> None:
    assert openmp_spin.rounds(round_time, wake_time) == expected


@LINUX
def test_a_real_libgomp_is_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = openmp_spin.spin_count()
    assert 100 < first < 10_000_000
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("measured again"))
    assert openmp_spin.spin_count() == first


@LINUX
def test_without_libgomp_the_default_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(openmp_spin, "_PROBE", tmp_path / "absent.py")
    assert openmp_spin.spin_count() == openmp_spin.DEFAULT
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("variable", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_what_the_environment_says_is_kept(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setenv(variable, "7")
    monkeypatch.setattr(openmp_spin, "spin_count", lambda: pytest.fail("measured"))
    assert openmp_spin.environment() == {}
