"""Requests per second through host, wire and a worker that answers at once, beside FastAPI on uvicorn answering the
same JSON by itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec

from benchmarks.host import free_port, serving, wait_for
from benchmarks.table import Row

ECHO = "task: echo\nmodel: package:coldframe_echo/model.echo\nslots: 64\n"
FASTAPI = """
import sys, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
app = FastAPI()
class Body(BaseModel):
    model: str
    text: str
@app.get("/livez")
async def livez(): return {"status": "ok"}
@app.post("/v1/echo")
async def echo(body: Body):
    n = len(body.text.split())
    usage = {"prompt_tokens": n, "completion_tokens": n, "cached_tokens": 0}
    return {"text": body.text, "usage": usage, "report": None}
uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False)
"""
CLIENTS = 16
SECONDS = 3.0
RUNS = 3


def measure() -> list[Row]:
    """Load both in turn, a few times."""
    what = "requests/s through host, wire and worker / FastAPI + uvicorn alone"
    missing = [module for module in ("fastapi", "uvicorn", "coldframe_echo") if find_spec(module) is None]
    if missing:
        return [Row(what, None, "", 2.0, at_least=True, note=f"not installed: {', '.join(missing)}")]
    ratios, ours = [], []
    with serving({"echo": ECHO}, '[host]\nlog_level = "warning"\n') as host, _fastapi() as other:
        for _ in range(RUNS):
            mine, theirs = asyncio.run(_rate(host.port)), asyncio.run(_rate(other))
            ratios.append(mine / theirs)
            ours.append(mine)
    note = f"{statistics.median(ours):.0f} requests/s, {CLIENTS} clients on the same cores"
    return [Row(what, statistics.median(ratios), "", 2.0, at_least=True, note=note)]


@contextlib.contextmanager
def _fastapi() -> Iterator[int]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", FASTAPI, str(port)])
    try:
        wait_for(f"http://127.0.0.1:{port}/livez", process)
        yield port
    finally:
        process.terminate()
        process.wait()


async def _rate(port: int) -> float:
    """Return requests per second of clients that each keep one connection and one request in flight."""
    body = json.dumps({"model": "echo", "text": "one two three"}).encode()
    head = f"POST /v1/echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    stop = time.perf_counter() + SECONDS
    done = await asyncio.gather(*(_client(port, request, stop) for _ in range(CLIENTS)))
    return sum(done) / SECONDS


async def _client(port: int, request: bytes, stop: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    while time.perf_counter() < stop:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = next(int(h.split(b":")[1]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length"))
        await reader.readexactly(length)
        count += 1
    writer.close()
    return count
