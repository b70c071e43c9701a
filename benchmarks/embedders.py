"""What embeddings are compared with: sentence-transformers in a process of its own, and infinity-emb's server.

infinity-emb pins other versions of what coldframe needs, so it lives in a virtual environment of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.host import free_port, wait_for

INFINITY = ("infinity-emb[server,torch]==0.0.78", "transformers<4.49", "optimum<2", "click<8.2")
SENTENCE = """
import json, os, sys, time
import torch
from sentence_transformers import SentenceTransformer
torch.set_num_threads(int(sys.argv[2]))
model = SentenceTransformer(sys.argv[1], device="cpu")
for line in sys.stdin:
    texts = json.loads(line)
    began = time.perf_counter()
    vectors = model.encode(texts, normalize_embeddings=True)
    print(json.dumps({"seconds": time.perf_counter() - began, "vectors": vectors.tolist()}), flush=True)
"""


class Sentence:
    """sentence-transformers' `encode` in fp32, with its own defaults."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def encode(self, texts: list[str]) -> tuple[float, list[list[float]]]:
        """Return the seconds that `encode` took, and the vectors."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the process has no pipes")
        stdin.write(json.dumps(texts) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline())
        return answer["seconds"], answer["vectors"]


@contextlib.contextmanager
def sentence_transformers(folder: Path, threads: int) -> Iterator[Sentence]:
    """Start a process that encodes when it is asked to."""
    command = [sys.executable, "-c", SENTENCE, str(folder), str(threads)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}, **pipes)
    try:
        yield Sentence(process)
    finally:
        process.kill()
        process.wait()


def infinity_python() -> tuple[Path | None, str]:
    """Return the interpreter of infinity-emb's environment, which is made where it is missing, or why there is none.

    `INFINITY_VENV` names one; otherwise it is in the user's cache.
    """
    named = os.environ.get("INFINITY_VENV")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(named) if named else cache / "coldframe" / "benchmarks" / "infinity"
    python = folder / "bin" / "python"
    if not (folder / "bin" / "infinity_emb").exists():
        if named:
            return None, f"no infinity_emb in {folder}"
        try:
            venv.create(folder, with_pip=True, clear=True)
            install = [str(python), "-m", "pip", "install", "--quiet", *INFINITY]
            subprocess.run(install, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=1200)
        except (OSError, subprocess.SubprocessError) as error:
            return None, f"infinity-emb cannot be installed: {error}"[:160]
    return python, ""


@contextlib.contextmanager
def infinity(python: Path, folder: Path, threads: int) -> Iterator[int]:
    """Start infinity-emb's server over the same model and yield its port."""
    port = free_port()
    options = {"model-id": folder, "engine": "torch", "device": "cpu", "host": "127.0.0.1", "port": port}
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    quiet = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    process = subprocess.Popen(
        [str(python.parent / "infinity_emb"), "v2", *words],
        env={**os.environ, **quiet, "OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process, 120)
        yield port
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        process.kill()
        process.wait()
