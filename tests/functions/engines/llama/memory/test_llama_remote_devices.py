"""Layouts on devices that are not the CPU, without a GPU: llama.cpp's RPC backend makes devices of two local processes.

llama-cpp-python's build has no RPC. `COLDFRAME_RPC_LIBRARY` names a libggml-rpc.so of the same llama.cpp, built as a
loadable backend (`g++ -shared -fPIC -DGGML_BACKEND_BUILD -DGGML_BACKEND_SHARED -DGGML_SHARED ggml-rpc/*.cpp` with
ggml's headers, against the wheel's libggml-base.so); without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ggufs import llamas

LIBRARY = os.environ.get("COLDFRAME_RPC_LIBRARY", "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not LIBRARY, reason="COLDFRAME_RPC_LIBRARY is not set")]
SERVE = """
import ctypes, sys
from functions.engines.llama.model.native_library import ggml
rpc = ctypes.CDLL(sys.argv[1])
ggml.ggml_backend_dev_by_type.restype = ctypes.c_void_p
cpu = (ctypes.c_void_p * 1)(ggml.ggml_backend_dev_by_type(0))
rpc.ggml_backend_rpc_start_server.argtypes = [ctypes.c_char_p] * 2 + [ctypes.c_size_t] * 2 + [ctypes.c_void_p]
rpc.ggml_backend_rpc_start_server(sys.argv[2].encode(), None, 1, 1, cpu)
"""
COMPARE = """
import ctypes, json, re, sys
from collections import Counter
import msgspec
from functions.engines.llama.memory import devices, estimate, plan
from functions.engines.llama.model import log
from functions.engines.llama.model.context import Context
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model.native_library import ggml
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from host.function import Load
from host.manifest import Manifest
path, library, *places = sys.argv[1:5]
asked = json.loads(sys.argv[5])
rpc = ctypes.CDLL(library)
rpc.ggml_backend_rpc_add_server.restype = ctypes.c_void_p
ggml.ggml_backend_register.argtypes = [ctypes.c_void_p]
for place in places:
    ggml.ggml_backend_register(rpc.ggml_backend_rpc_add_server(place.encode()))
names = {f"RPC0[{place}]": f"rpc:{number}" for number, place in enumerate(places)}
devices_pool_of = devices.pool_of
estimate.pool_of = lambda name: names.get(name) or devices_pool_of(name)  # buffers are called by their place
mib = asked.pop("rooms")
seen = tuple(msgspec.structs.replace(one, total=size << 20, free=size << 20)
             for one, size in zip(devices.accelerators(), mib))
manifest = Manifest(task="chat", model="x", context=asked.pop("context"), slots=2)
options = {"mmap": False, "batch": 128, "ubatch": 128} | asked
load = Load(manifest=manifest, path=path, engine="llama", options=msgspec.msgpack.encode(options))
load = msgspec.structs.replace(load, memory={"ram": 8 << 30, "rpc:0": mib[0] << 20, "rpc:1": mib[1] << 20})
made = plan.make(load, seen)
settings = msgspec.convert(options, LlamaOptions)

def run(target):
    with log.listen() as heard:
        model = Model.open(path, settings, target)
        context = Context.open(model, settings, target, context=manifest.context, slots=2)
    taken = Counter()
    for _, line in heard:
        if found := re.search(r"(\\S+) (?:model|KV) buffer size =\\s*([\\d.]+)", line):
            name = found[1]
            taken["ram" if name.startswith("CPU") else "accelerators"] += float(found[2])
    for found in (re.search(r"(\\S+)\\s+(?:compute|output) buffer size =\\s*([\\d.]+)", line) for _, line in heard):
        if found:
            taken["ram" if found[1].startswith("CPU") else "accelerators"] += float(found[2])
    tokens, text = [1, 50, 60, 70], []
    for at in range(12):
        context.begin()
        context.add(0, tokens if not at else text[-1:], 0 if not at else 3 + at, output=1)
        assert context.compute() == 0
        text.append(int(context.logits(3 if not at else 0).argmax()))
    context.close(), model.close()
    return taken, text

target = devices.from_detail(made.detail, seen)
taken, text = run(target)
_, plain = run(Target())
print(json.dumps({"bytes": made.bytes, "detail": made.detail, "notes": made.notes, "taken": taken,
                  "same": text == plain, "context": made.context}))
"""


@pytest.fixture(scope="module")
def places() -> Iterator[list[str]]:
    servers, found = [], []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{free.getsockname()[1]}"
        servers.append(subprocess.Popen([sys.executable, "-c", SERVE, LIBRARY, place], stdout=subprocess.DEVNULL))
        found.append(place)
        for _ in range(1200):
            time.sleep(0.1)
            with socket.socket() as probe:
                if not probe.connect_ex(("127.0.0.1", int(place.partition(":")[2]))):
                    break
    yield found
    for server in servers:
        server.kill()
        server.wait()


def compare(model: Path, places: list[str], tmp_path: Path, **asked: Any) -> dict[str, Any]:
    arguments = [sys.executable, "-c", COMPARE, str(model), LIBRARY, *places, json.dumps(asked)]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("rooms", "options", "devices"),
    [
        ((400, 100), {}, "rpc:0"),
        ((100, 400), {}, "rpc:1"),
        ((110, 110), {}, "rpc:0,rpc:1"),
        ((60, 30), {}, "rpc:0,rpc:1"),
        ((70, 20), {"split_mode": "none"}, "rpc:0"),
        ((400, 400), {"tensor_split": [1, 3]}, "rpc:0,rpc:1"),
        ((400, 400), {"gpu_layers": 10}, "rpc:0"),
        ((300, 400), {"main_gpu": 0}, "rpc:0"),
    ],
)
def test_planned_bytes_equal_the_layout(
    smollm2: Path, places: list[str], tmp_path: Path, rooms: tuple[int, int], options: dict[str, Any], devices: str
) -> None:
    found = compare(smollm2, places, tmp_path, rooms=rooms, context=1024, **options)
    assert found["detail"]["devices"] == devices and found["same"]
    planned = {pool: size / (1 << 20) for pool, size in found["bytes"].items()}
    accelerators = sum(size for pool, size in planned.items() if pool != "ram")
    assert accelerators == pytest.approx(found["taken"]["accelerators"], rel=0.06)
    # The process itself, and what is kept of each token in the cache, are no buffers.
    assert planned["ram"] - 40 == pytest.approx(found["taken"].get("ram", 0), rel=0.06, abs=1)
    if "gpu_layers" not in options:
        assert all(planned.get(f"rpc:{number}", 0) <= rooms[number] for number in range(2))


def test_experts_on_the_cpu(places: list[str], tmp_path: Path) -> None:
    model = llamas.write(tmp_path / "moe.gguf", *llamas.llama(layers=6, experts=48))
    taken = [
        compare(model, places, tmp_path, rooms=(400, 100), context=256, **options)["taken"]["ram"]
        for options in ({}, {"n_cpu_moe": 2}, {"cpu_moe": True})
    ]
    each = 3 * 48 * llamas.INNER * llamas.WIDTH * 4 / (1 << 20)
    assert taken[1] - taken[0] == pytest.approx(2 * each, rel=0.1) and taken[2] - taken[0] == pytest.approx(
        6 * each, rel=0.1
    )
