"""Memory estimates compared with the memory of a process that loads, and with llama.cpp's log."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ggufs import llamas

from functions.engines.llama.memory import plan as planning
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.memory.estimate import MAX_MEASURED_TOKENS, MemoryEstimate
from functions.engines.llama.memory.plan import make
from functions.engines.llama.model import log
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from host.errors import LoadFailed
from host.function import Load
from host.manifest import Manifest

MIB = 1 << 20
FILL = """
import sys, msgspec
from functions.engines.llama.model.context import Context
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
path, options, context, slots = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
options = msgspec.json.decode(options, type=LlamaOptions)
def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) << 10
before = anonymous()
model = Model.open(path, options, Target())
made = Context.open(model, options, Target(), context=context, slots=slots, threads=1)
for start in range(0, min(context, options.batch), options.batch):
    made.begin()
    made.add(0, [5] * min(options.batch, context), start, output=1)
    assert made.compute() == 0
print(anonymous() - before)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def load(path: Path, options: dict[str, Any], **manifest: Any) -> Load:
    said = Manifest(task="chat", model="x", device="cpu", **manifest)
    return Load(manifest=said, path=str(path), engine="llama", options=msgspec.Raw(msgspec.msgpack.encode(options)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "context", "slots"),
    [
        ({}, 2048, 1),
        ({}, 4096, 4),
        ({"ubatch": 128, "batch": 128}, 8192, 2),
        ({"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, 8192, 2),
        ({"cache_type_k": "f32", "cache_type_v": "f32"}, 2048, 2),
        ({"flash_attention": "off"}, 1024, 1),
        ({"batch": 1024, "ubatch": 1024}, 1024, 4),
    ],
)
def test_a_real_model(smollm2: Path, options: dict[str, Any], context: int, slots: int) -> None:
    options |= {"mmap": False}
    plan = make(load(smollm2, options, context=context, slots=slots))
    told = msgspec.json.encode(options).decode()
    arguments = [sys.executable, "-c", FILL, str(smollm2), told, str(context), str(slots)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    taken, planned = int(done.stdout), plan.bytes["ram"] - planning.PROCESS
    # Beside its buffers llama.cpp keeps the vocabulary and graphs, which is what PROCESS is for; buffers that no
    # batch has filled are not taken yet.
    assert planned * 0.9 < taken < planned * 1.03 + planning.PROCESS, f"{taken / MIB:.0f} of {planned / MIB:.0f} MiB"


def gemma() -> tuple[dict[str, Any], dict[str, Any]]:
    from ggufs.memories import windowed

    return windowed()


def mamba() -> tuple[dict[str, Any], dict[str, Any]]:
    from ggufs.memories import recurrent

    return recurrent()


@pytest.mark.parametrize("kind", [llamas.llama, gemma, mamba])
@pytest.mark.parametrize(
    ("options", "context", "slots"),
    [({}, 1024, 1), ({}, 4096, 5), ({"sliding_window_full": True}, 4096, 2), ({"cache_type_k": "f32"}, 512, 3)],
)
def test_every_kind_of_memory(tmp_path: Path, kind: Any, options: dict[str, Any], context: int, slots: int) -> None:
    path = llamas.write(tmp_path / "m.gguf", *kind())
    settings = msgspec.convert(options, LlamaOptions)
    estimate = MemoryEstimate(str(path), settings)
    size = estimate.context(Target(), context, slots)
    estimate.close()
    model = Model.open(str(path), settings, Target())
    with log.listen() as heard:
        Context.open(model, settings, Target(), context=context, slots=slots).close()
    model.close()
    lines = "\n".join(line for _, line in heard)
    caches = [float(found) for found in re.findall(r"(?:KV|RS) buffer size =\s*([\d.]+)", lines)]
    buffers = [float(found) for found in re.findall(r"(?:compute|output) buffer size =\s*([\d.]+)", lines)]
    assert caches and sum(caches) > 0
    book = context * slots * 48
    assert size.cache["ram"] - book == pytest.approx(sum(caches) * MIB, rel=0.01, abs=MIB / 50)
    assert size.compute["ram"] == pytest.approx(sum(buffers) * MIB, rel=0.02, abs=MIB / 50)


def test_windows_and_states_are_small(tmp_path: Path) -> None:
    def taken(kind: Any, **options: Any) -> int:
        path = llamas.write(tmp_path / f"{kind.__name__}.gguf", *kind())
        plan = make(load(path, options, context=4096, slots=2))
        return int(plan.detail["cache"]) - 8192 * 48

    assert taken(gemma) < taken(gemma, sliding_window_full=True) / 3, "five of six layers hold a window"
    assert taken(mamba) < 64 << 10, "a state does not grow with the context"


def test_a_kv_cache_too_large_to_measure_is_extrapolated(smollm2: Path) -> None:
    before = peak()
    plan = make(load(smollm2, {}, context=100_000_000, slots=4))
    expected = 400_000_000 * (30 * 3 * 64 * 2 * 2 + 48)
    assert int(plan.detail["cache"]) == pytest.approx(expected, rel=0.001)
    assert peak() - before < 400 * MIB


def test_extrapolated_sizes_equal_measured_ones(smollm2: Path) -> None:
    estimate = MemoryEstimate(str(smollm2), LlamaOptions())
    small, large = (
        estimate.context(Target(), MAX_MEASURED_TOKENS // 8, 2),
        estimate.context(Target(), MAX_MEASURED_TOKENS // 4, 8),
    )
    assert large.cache["ram"] == pytest.approx(small.cache["ram"] * 8, rel=0.001)
    estimate.close()


def test_more_tokens_than_can_be_counted(tmp_path: Path) -> None:
    model = Model.open(str(llamas.write(tmp_path / "m.gguf", *llamas.llama())), LlamaOptions(), Target())
    with pytest.raises(LoadFailed, match=r"200 x 16777216 tokens .* can count"):
        Context.open(model, LlamaOptions(), Target(), context=1 << 24, slots=200)
    model.close()


def peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s*(\d+)", status)[0]) << 10
