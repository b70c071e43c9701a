"""Plants each fault of `faults.py` in a copy of the tree and runs its tests, which should fail.

    python tests/faults/run.py                    # all
    python tests/faults/run.py decide 'ner: the'  # those whose names contain one of these words
    python tests/faults/run.py --tests PATH       # with the tests of another checkout

Exit status 1 when a fault was missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faults import FAULTS, Fault

ROOT = Path(__file__).parents[2]
LIMIT = 120
"""Seconds that the tests of one fault may take; a fault may make them wait for ever, which counts as caught."""
NEEDED = (
    "host", "functions", "benchmarks", "docs", "examples", "manifests", "README.md", "granian.toml", "pyproject.toml",
)  # fmt: skip
NOTHING_FAILED, NOTHING_RUN = 0, (2, 3, 4, 5)
"""Exit statuses of pytest; from 2 on no test of ours has failed, but the run itself."""


def copy(tests: Path, to: Path) -> None:
    """Copy what the tests need: our code, and the tests of `tests`, a checkout."""
    for name in (
        "host",
        "functions",
        "benchmarks",
        "docs",
        "examples",
        "manifests",
        "README.md",
        "granian.toml",
        "pyproject.toml",
    ):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, to / name)
    shutil.copytree(tests / "tests", to / "tests", ignore=shutil.ignore_patterns("__pycache__"))


def run(tree: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """Run tests in a tree; returns pytest's exit status (-1 when they took too long) and the first failure."""
    there = [test for test in tests if test.startswith("-") or not test.startswith("tests/") or (tree / test).exists()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", *there]
    path = os.pathsep.join(map(str, (tree, tree / "tests/plugins/coldframe_echo", os.environ.get("PYTHONPATH", ""))))
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return -1, f"nothing in {LIMIT} s"
    lines = done.stdout.splitlines() or done.stderr.splitlines() or [""]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return done.returncode, (failed or lines[-1:])[0]


def tried(fault: Fault, tree: Path) -> bool:
    """Plant one fault, run its tests, take it out again; returns whether it was caught."""
    file = tree / fault.file
    whole = file.read_text()
    if whole.count(fault.old) != 1:
        print(
            f"| {fault.name} | not planted | `old` stands {whole.count(fault.old)} times in {fault.file} |", flush=True
        )
        return False
    began = time.monotonic()
    file.write_text(whole.replace(fault.old, fault.new))
    try:
        status, first = run(tree, fault.tests)
    finally:
        file.write_text(whole)
    outcome = (
        "MISSED"
        if status == NOTHING_FAILED
        else "not run"
        if status in NOTHING_RUN and "ERROR" not in first
        else "caught"
    )
    print(f"| {fault.name} | {outcome} | {time.monotonic() - began:.0f} s: {first[:120]} |", flush=True)
    return outcome == "caught"


def main() -> int:
    """Try what is asked for; prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="of the names of faults; default: all")
    parser.add_argument("--tests", type=Path, default=ROOT, help="a checkout whose tests are run (default: this one)")
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if not given.words or any(word in fault.name for word in given.words)]
    print("| fault | outcome | first failure |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="coldframe-faults-") as folder:
        copy(given.tests, Path(folder))
        caught = sum(tried(fault, Path(folder)) for fault in chosen)
    print(f"\n{caught} of {len(chosen)} caught")
    return int(caught < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
