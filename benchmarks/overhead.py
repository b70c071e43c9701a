"""Requests per second through host, wire and a worker that answers at once, beside FastAPI on uvicorn answering the
same JSON by itself."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from importlib.util import find_spec

from benchmarks.fastapi_peer import fastapi, missing
from benchmarks.host import serving
from benchmarks.table import Row

ECHO = "task: echo\nmodel: package:coldframe_echo/model.echo\nslots: 64\n"
CLIENTS = 16
SECONDS = 3.0
RUNS = 3


def measure() -> list[Row]:
    """Load both in turn, a few times."""
    what = "requests/s through host, wire and worker / FastAPI + uvicorn alone"
    absent = [*missing(), *([] if find_spec("coldframe_echo") else ["coldframe_echo"])]
    if absent:
        return [Row(what, None, "", 2.0, at_least=True, note=f"not installed: {', '.join(absent)}")]
    ratios, ours = [], []
    with serving({"echo": ECHO}, '[host]\nlog_level = "warning"\n') as host, fastapi(quiet=True) as other:
        for _ in range(RUNS):
            mine, theirs = asyncio.run(_rate(host.port)), asyncio.run(_rate(other.port))
            ratios.append(mine / theirs)
            ours.append(mine)
    note = f"{statistics.median(ours):.0f} requests/s, {CLIENTS} clients on the same cores"
    return [Row(what, statistics.median(ratios), "", 2.0, at_least=True, note=note)]


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
