"""FastAPI on uvicorn that answers `POST /v1/echo` by itself, in a process of its own.

`PEER_PYTHON` names an interpreter that has both; left out, it is the one that runs the benchmark.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.host import HostProcess, free_port, wait_for

PYTHON = os.environ.get("PEER_PYTHON", sys.executable)
APP = """
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
quiet = {"log_level": "error", "access_log": False} if "quiet" in sys.argv else {}
uvicorn.run(app, port=int(sys.argv[1]), **quiet)
"""


def missing() -> list[str]:
    """Return the modules that the peer needs and its interpreter lacks."""
    names = ("fastapi", "uvicorn")
    probe = "import sys, importlib.util as u; print(*[n for n in sys.argv[1:] if u.find_spec(n) is None])"
    return subprocess.run([PYTHON, "-c", probe, *names], capture_output=True, text=True, check=True).stdout.split()


def loop() -> str:
    """Return what uvicorn runs on there: its event loop and its HTTP parser."""
    probe = "import importlib.util as u; print(*[a if u.find_spec(a) else b for a, b in {}])"
    pairs = (("uvloop", "asyncio"), ("httptools", "h11"))
    found = subprocess.run([PYTHON, "-c", probe.format(pairs)], capture_output=True, text=True, check=True)
    return " + ".join(found.stdout.split())


@contextlib.contextmanager
def fastapi(*, quiet: bool = False) -> Iterator[HostProcess]:
    """Run it; with its default logs, written to a file, or `quiet`."""
    port = free_port()
    with tempfile.TemporaryFile() as log:
        command = [PYTHON, "-c", APP, str(port), *(["quiet"] if quiet else [])]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for(f"http://127.0.0.1:{port}/livez", process)
            yield HostProcess(process, port, 0.0)
        finally:
            process.terminate()
            process.wait()
