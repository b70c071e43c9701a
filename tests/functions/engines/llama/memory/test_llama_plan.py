"""Plans report the bytes before any weight is read, keep within budgets, and are cached by file."""

from __future__ import annotations

import gc
import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from functions.engines.llama.instance import LlamaInstance
from functions.engines.llama.memory import plan as planning
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.memory.estimate import read_sizes
from functions.engines.llama.memory.plan import make
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from functions.engines.model_cache import ModelCache
from host.errors import LoadFailed, OutOfMemory
from host.function import Load
from host.manifest import Manifest

MIB = 1 << 20


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def load(path: Path, ram: int | None = 8 << 30, attempt: int = 0, options: Any = None, **manifest: Any) -> Load:
    return Load(
        manifest=Manifest(task="chat", model="x", **manifest),
        path=str(path),
        engine="llama",
        options=msgspec.Raw(msgspec.msgpack.encode(options or {})),
        memory={} if ram is None else {"ram": ram},
        attempt=attempt,
    )


def test_manifest_values_are_planned(smollm2: Path) -> None:
    plan = make(load(smollm2, context=1024, slots=3))
    assert (plan.context, plan.slots, plan.device, plan.notes) == (1024, 3, "cpu", ())
    # 30 layers, 3 heads of 64, keys and values, two bytes each.
    assert plan.detail["cache"] == 1024 * 3 * (30 * 3 * 64 * 2 * 2 + 48)
    assert plan.detail["trained_context"] == 8192
    assert plan.bytes["ram"] > plan.detail["weights"] + plan.detail["cache"]


def test_auto_means_trained_context_and_four_slots(smollm2: Path) -> None:
    plan = make(load(smollm2))
    assert (plan.context, plan.slots) == (8192, 4)
    assert any("4 slots" in note for note in plan.notes) and any("trained for" in note for note in plan.notes)


@pytest.mark.parametrize("ram", [400, 600, 900, 1400, 2200])
def test_automatic_sizes_keep_within_the_budget(smollm2: Path, ram: int) -> None:
    plan = make(load(smollm2, ram=ram * MIB))
    assert plan.context is not None
    assert plan.context % 256 == 0 and 512 <= plan.context <= 8192
    assert plan.bytes["ram"] <= ram * MIB
    more = make(load(smollm2, ram=ram * MIB, context=plan.context + 256, slots=plan.slots))
    half = (ram * MIB - int(plan.detail["weights"]) - planning.PROCESS) // 2
    if plan.context < 8192:
        assert int(more.detail["cache"]) + int(more.detail["compute"]) > half, "as long as half of what is left allows"


def test_slots_are_given_up_before_the_context(smollm2: Path) -> None:
    assert [make(load(smollm2, ram=ram * MIB)).slots for ram in (500, 1600)] == [1, 4]
    assert make(load(smollm2, ram=900 * MIB, slots=4)).slots == 4
    assert make(load(smollm2, ram=500 * MIB, context=8192)).slots == 1


def test_a_plan_that_cannot_fit_reports_its_size(smollm2: Path) -> None:
    plan = make(load(smollm2, ram=100 * MIB, context=8192, slots=4))
    assert (plan.context, plan.slots) == (8192, 4) and plan.bytes["ram"] > 800 * MIB, "the host refuses it, with this"


def test_without_a_budget_there_is_no_limit(smollm2: Path) -> None:
    assert make(load(smollm2, ram=None)).context == 8192


@pytest.mark.parametrize(
    ("manifest", "context", "slots"),
    [({}, 4096, 2), ({"slots": 3}, 4096, 3), ({"context": 2048}, 2048, 2), ({"context": 600, "slots": "auto"}, 600, 2)],
)
def test_a_second_attempt_takes_less_of_what_is_open(
    smollm2: Path, manifest: dict[str, Any], context: int, slots: int
) -> None:
    first, second = make(load(smollm2, **manifest)), make(load(smollm2, attempt=1, **manifest))
    assert (second.context, second.slots) == (context, slots)
    assert second.bytes["ram"] < first.bytes["ram"] and "ran out of memory" in second.notes[0]


def test_a_second_attempt_with_nothing_open(smollm2: Path) -> None:
    with pytest.raises(OutOfMemory):
        make(load(smollm2, attempt=1, context=512, slots=1))


def test_more_than_trained_is_noted(smollm2: Path) -> None:
    assert any("more than the 8192" in note for note in make(load(smollm2, context=9000, slots=1)).notes)


@pytest.mark.parametrize(
    ("options", "times"), [({"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, 0.54), ({"cache_type_k": "f32"}, 1.51)]
)
def test_options_change_the_size(smollm2: Path, options: dict[str, str], times: float) -> None:
    plain, other = [make(load(smollm2, context=2048, slots=1, options=o)) for o in ({}, options)]
    assert int(other.detail["cache"]) / int(plain.detail["cache"]) == pytest.approx(times, abs=0.02)


def test_estimates_for_other_options_are_not_used(smollm2: Path) -> None:
    asked = [{}, {"speculation": "prompt_lookup", "draft_tokens": 64}, {"deterministic": True}, {"ubatch": 128}]
    weighed = [make(load(smollm2, context=1024, slots=4, options=options)) for options in asked]
    assert len({(plan.detail["cache"], plan.detail["compute"]) for plan in weighed}) >= 3
    for options, plan in zip(asked, weighed, strict=True):
        os.environ["XDG_CACHE_HOME"] += "x"  # nothing is known there
        assert make(load(smollm2, context=1024, slots=4, options=options)) == plan


def test_planning_does_not_allocate_the_weights(smollm2: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    make(load(smollm2, context=256, slots=1))
    gc.collect()  # nothing of other tests is given back meanwhile
    before = resident()
    make(load(smollm2, context=8192, slots=8))
    assert resident() - before < 60 * MIB, "the plan says 1.5 GB"


def test_a_plan_equals_the_memory_used(smollm2: Path) -> None:
    plan = make(load(smollm2, context=2048, slots=2))
    gc.collect()
    before = int(Path("/proc/self/statm").read_text().split()[1])
    model = Model.open(str(smollm2), LlamaOptions(mmap=False), Target())
    context = Context.open(model, LlamaOptions(), Target(), context=2048, slots=2)
    taken = (int(Path("/proc/self/statm").read_text().split()[1]) - before) * os.sysconf("SC_PAGESIZE")
    context.close()
    model.close()
    assert taken < plan.bytes["ram"] < taken + planning.PROCESS + 40 * MIB


def test_a_known_model_is_not_opened_again(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make(load(smollm2, ram=600 * MIB))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("opened")

    with monkeypatch.context() as patch:
        patch.setattr(Model, "open", refuse)
        assert make(load(smollm2, ram=600 * MIB)) == first
        with pytest.raises(AssertionError):
            make(load(smollm2, ram=600 * MIB, options={"ubatch": 64}))


def test_a_changed_file_is_estimated_again(smollm2: Path, tmp_path: Path, cache: Path) -> None:
    model = tmp_path / "m.gguf"
    shutil.copyfile(smollm2, model)
    make(load(model, context=256, slots=1))
    assert ModelCache("llama", model, "v").get("anything") is None
    [page] = (cache / "coldframe" / "llama").iterdir()
    assert str(tmp_path) not in page.read_text()
    os.utime(model, (time.time(), time.time() + 5))
    model.write_bytes(b"GGUF, but broken now")
    with pytest.raises(LoadFailed):
        make(load(model, context=256, slots=1))


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"signature": 5}'])
def test_a_corrupt_estimate_cache_is_ignored(smollm2: Path, cache: Path, content: bytes) -> None:
    expected = make(load(smollm2, context=512, slots=1))
    [page] = (cache / "coldframe" / "llama").iterdir()
    page.write_bytes(content)
    assert make(load(smollm2, context=512, slots=1)) == expected


def test_a_folder_that_cannot_be_written(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert make(load(smollm2, context=512, slots=1)).context == 512


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="not there"):
        make(load(tmp_path / "gone.gguf"))


LOG = [
    "llama_kv_cache: size =  180.00 MiB (  8192 cells,  30 layers,  4/1 seqs), K (f16): 90.00 MiB, V (f16): 90.00 MiB",
    "llama_kv_cache: size =   20.00 MiB (  1024 cells,   6 layers,  4/1 seqs), K (f16): 10.00 MiB, V (f16): 10.00 MiB",
    "llama_memory_recurrent: size =    5.00 MiB (  4 cells,  16 layers, 4 seqs), R (f32): 1.00 MiB, S (f32): 4.00 MiB",
    "llama_context:        CPU  output buffer size =     0.75 MiB",
    "sched_reserve:      CUDA0 compute buffer size =    98.25 MiB",
    "sched_reserve:  CUDA_Host compute buffer size =     4.00 MiB",
]


def test_buffer_sizes_are_read_from_the_log() -> None:
    size = read_sizes(LOG)
    assert size.cache == {"ram": 205 * MIB}
    assert size.compute == {"cuda:0": int(98.25 * MIB), "ram": int(4.75 * MIB)}
    assert size.total == {"cuda:0": int(98.25 * MIB), "ram": int(209.75 * MIB)}


def test_kv_cache_is_on_the_devices_of_its_layers() -> None:
    told = [
        *["llama_kv_cache: layer   0: dev = CPU", "llama_kv_cache: layer   5: dev = CUDA0", LOG[0]],
        *["llama_kv_cache: layer   1: dev = CUDA0"] * 3,
        *["llama_kv_cache: layer   4: dev = CUDA1", LOG[1]],
        *["llama_memory_recurrent, layer   2: dev = CPU", LOG[2]],
    ]
    assert read_sizes(told).cache == {"ram": 95 * MIB, "cuda:0": 105 * MIB, "cuda:1": 5 * MIB}


@pytest.mark.parametrize(("ram", "slots"), [(420 << 20, 4), (420 << 20, "auto"), (600 << 20, 4), (600 << 20, "auto")])
def test_a_draft_model_is_included_in_the_fit(smollm2: Path, ram: int, slots: Any) -> None:
    options = {"speculation": "draft", "draft": str(smollm2)}
    found = LlamaInstance.plan(load(smollm2, ram, options=options, slots=slots))
    assert found.bytes["ram"] <= ram
    alone = make(load(smollm2, ram, slots=found.slots, context=found.context))
    assert found.bytes["ram"] - found.detail["kept_prefixes"] > alone.bytes["ram"] + 90_000_000, "its weights count"


def test_more_slots_than_llama_cpp_has_are_refused_by_name(smollm2: Path) -> None:
    with pytest.raises(LoadFailed, match=r"`slots` is 300: llama\.cpp takes up to 256"):
        LlamaInstance.plan(load(smollm2, slots=300, context=64))
