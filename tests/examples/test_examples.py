"""The programs in examples/ run as their first lines say, against the host that all of these tests share."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(*words: object, **environment: str) -> list[str]:
    """Run a program of examples/ as a user does; returns the lines it prints."""
    done = subprocess.run(
        [sys.executable, *map(str, words)], cwd=ROOT, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_manifest_is_dropped_in(served):
    lines = run(EXAMPLES / "drop_in_manifest.py", served.manifests, served.url)
    assert lines == ["The capital of France is Paris.", "dropped-in is gone"]
    assert not (served.manifests / "dropped-in.yaml").exists()


def test_openais_sdk_asks_the_host(served):
    first, second, third = run(EXAMPLES / "openai_sdk.py", f"{served.url}/v1")
    assert "Paris" in first
    assert "Rome" in second
    assert third == "2 vectors of 384 numbers"


def test_one_function_is_called_in_a_test():
    lines = run("-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLES / "test_one_function.py")
    assert lines[-1].startswith("1 passed")


def test_a_container_serves_one_function(tmp_path):
    lines = run(EXAMPLES / "container" / "without_docker.py", XDG_CACHE_HOME=str(tmp_path))
    assert "served: ['smollm2-135m']" in lines
    assert "answer: The capital of France is Paris." in lines
    assert lines[-1] == "ended with status 0"


def test_the_image_runs_the_same_command():
    dockerfile = (EXAMPLES / "container" / "Dockerfile").read_text()
    command = json.loads(re.findall(r"^CMD (.+)$", dockerfile, re.MULTILINE)[-1])
    example = runpy.run_path(str(EXAMPLES / "container" / "without_docker.py"))
    assert command == example["command"]("/manifests")
    assert json.loads(re.findall(r"^CMD (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)[0]) == command


def test_the_image_is_built_of_what_is_here_and_of_nothing_else():
    folder = EXAMPLES / "container"
    sent = re.findall(r"^!(.+)$", (folder / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    copied = {
        word
        for line in re.findall(r"^COPY (.+)$", (folder / "Dockerfile").read_text(), re.MULTILINE)
        for word in line.split()[:-1]
    }
    assert copied == set(sent)
    assert all((ROOT / name).exists() for name in copied)


def test_every_example_is_listed():
    listed = re.findall(r"\]\(([\w/.]+)\)", (EXAMPLES / "README.md").read_text())
    files = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")}
    assert files <= set(listed)
