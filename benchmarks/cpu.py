"""CPU seconds per request of the whole process tree, beside FastAPI on uvicorn answering the same JSON by itself.

A compiled client (`wrk`) keeps 16 connections busy, so its own time is not counted and does not slow anything down.
Both servers keep their default logs, written to a file. What is counted is user and system time from /proc.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.fastapi_peer import fastapi, loop, missing
from benchmarks.host import HostProcess, serving
from benchmarks.table import Row

ECHO = "task: echo\nmodel: package:coldframe_echo/model.echo\nslots: {slots}\nqueue:\n  size: 64\n"
SCRIPT = """
wrk.method, wrk.body = "POST", '{{"model": "echo", "text": "one two three"}}'
wrk.headers["content-type"] = "application/json"
local left = {requests}
function response(status)
  if status ~= 200 then os.exit(1) end
  left = left - 1
  if left == 0 then os.exit(0) end
end
"""
CONNECTIONS = 16
REQUESTS = int(os.environ.get("CPU_REQUESTS", "20000"))
RUNS = int(os.environ.get("CPU_RUNS", "3"))
BOUND = 0.8
_TICK = os.sysconf("SC_CLK_TCK")


def measure() -> list[Row]:
    """Load the hosts of 1 and of 64 slots and the peer in turn, and return the ratios of their medians."""
    what = "CPU per request, host with {} / FastAPI + uvicorn"
    absent = [*missing(), *([] if shutil.which("wrk") else ["wrk"])]
    if absent:
        return [Row(what.format("any slots"), None, "", BOUND, note=f"not installed: {', '.join(absent)}")]
    print(machine(), file=sys.stderr)
    with _host(1) as one, _host(64) as many, fastapi() as peer:
        servers = (one, many, peer)
        for server in servers:
            load(server, 1000)  # the model is loaded, and everything imported, before anything is counted
        spent = [[load(server, REQUESTS) for server in servers] for _ in range(RUNS)]
    single, several, other = (statistics.median(column) for column in zip(*spent, strict=True))
    note = f"{{:.0f}} µs; {other:.0f} µs the peer on {loop()}"
    return [
        Row(what.format("1 slot"), single / other, "", BOUND, note=note.format(single)),
        Row(what.format("64 slots"), several / other, "", BOUND, note=note.format(several)),
        Row("CPU per request that queues for its slot / that does not", single / several, "", 2.0),
    ]


def machine() -> str:
    """Return the processor, the instructions it has that matter here, its cores and its load, in one line."""
    info = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    facts = {key.strip(): value.strip() for key, value in info.items()}
    flags = facts.get("flags", "").split()
    known = [name for name in ("avx2", "avx512f", "avx512_vnni", "amx_tile", "amx_int8") if name in flags]
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return f"{facts.get('model name', '?')} ({', '.join(known)}), {cores} cores, load before {load:.2f}"


def load(server: HostProcess, requests: int) -> float:
    """Send so many requests and return the microseconds of CPU one of them took."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT.format(requests=requests))
        script.flush()
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", "-d300s", "-s", script.name, f"{server.url}/v1/echo"]
        before = seconds(server.tree())
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return (seconds(server.tree()) - before) / requests * 1e6


def seconds(pids: list[int]) -> float:
    """Return the CPU seconds, user and system, that processes and their dead children have taken so far."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / _TICK


def _host(slots: int) -> contextlib.AbstractContextManager[HostProcess]:
    return serving({"echo": ECHO.format(slots=slots)}, logs=True)
