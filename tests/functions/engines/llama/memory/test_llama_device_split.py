"""Layers on accelerators: devices, number of layers, shares. Uses made-up devices; no GPU is needed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.engines.llama.memory.device_split import layouts
from functions.engines.llama.memory.devices import Device, Target, candidates, from_detail, to_detail
from functions.engines.llama.memory.estimate import LayerWeights, layer_weights, weights_by_pool
from functions.engines.llama.memory.fit import FitRequest, FitResult, MemoryFit, fits_into, largest
from functions.engines.llama.memory.plan import available
from functions.engines.llama.model import model as modelling
from functions.engines.llama.options import LlamaOptions
from host.errors import LoadFailed, OutOfMemory
from host.function import Load
from host.manifest import Manifest

GIB = 1 << 30
LAYERS = 32
LAYER, HEAD, INPUT = 200 << 20, 400 << 20, 300 << 20
PER_TOKEN = 128 << 10
BLOCKS = LayerWeights(layers=(LAYER,) * LAYERS, experts=(LAYER // 2,) * LAYERS, output=HEAD, rest=INPUT)


def gpu(number: int, free: int = 24, total: int = 24, kind: str = "CUDA", integrated: bool = False) -> Device:
    name = f"{kind}{number}"
    pool = f"{kind.lower()}:{number}"
    return Device(handle=number + 1, name=name, pool=pool, total=total * GIB, free=free * GIB, integrated=integrated)


def weights(target: Target, experts: int = 0) -> dict[str, int]:
    return weights_by_pool(BLOCKS, target, experts) if target.devices else {"ram": LAYERS * LAYER + HEAD + INPUT}


def needed(target: Target, context: int, slots: int) -> dict[str, int]:
    """Every layer takes its part of the cache along, and every device used has its buffers."""
    taken = Counter(weights(target))
    for pool in target.pools(LAYERS)[:LAYERS]:
        taken[pool] += context * slots * PER_TOKEN // LAYERS
    for device in target.devices:
        taken[device.pool] += 300 << 20
    return dict(taken)


def choose(
    *found: Device, ram: int = 64, options: dict[str, Any] | None = None, device: str = "auto", **asked: Any
) -> FitResult:
    said = LlamaOptions(**(options or {}))
    there = candidates(device, found)
    room = {"ram": ram * GIB} | {one.pool: one.free for one in there}
    layers = None if said.gpu_layers == "auto" else said.gpu_layers
    wish = FitRequest(trained=8192, model_layers=LAYERS, layers=layers, **asked)
    return MemoryFit(wish, needed, weights, room).choose(layouts(said, there, room, found))


def test_one_device_is_used_if_the_model_fits() -> None:
    choice = choose(gpu(0, 20), gpu(1, 22), context=4096, slots=2)
    assert [device.pool for device in choice.target.devices] == ["cuda:1"], "the one with the most free memory"
    assert choice.target.offloaded(LAYERS) == LAYERS + 1 and choice.target.split == "none"


def test_a_larger_model_is_split_over_as_few_devices_as_possible() -> None:
    choice = choose(gpu(0, 5), gpu(1, 2), gpu(2, 4), context=4096, slots=2)
    assert [device.pool for device in choice.target.devices] == ["cuda:0", "cuda:2"], "in llama.cpp's order"
    assert (choice.target.split, choice.target.shares) == ("layer", (5.0, 4.0))
    assert Counter(choice.target.pools(LAYERS)) == {"cuda:0": 19, "cuda:2": 14}


@pytest.mark.parametrize("free", range(1, 8))
def test_as_many_layers_as_fit(free: int) -> None:
    choice = choose(gpu(0, free), context=4096, slots=2)
    layers = choice.target.offloaded(LAYERS)
    limits = {"cuda:0": free * GIB}
    assert fits_into(needed(choice.target, 4096, 2), limits)
    if layers <= LAYERS:
        more = msgspec.structs.replace(choice.target, devices=(gpu(0, free),), layers=layers + 1)
        assert not fits_into(needed(more, 4096, 2), limits), "one layer more would not fit"
    assert (choice.context, choice.slots) == (4096, 2), "what the manifest says is not given up for layers"


def test_a_device_that_holds_no_layer_is_left_alone() -> None:
    choice = choose(gpu(0, 0), context=4096, slots=1)
    assert choice.target.devices == () and choice.target.pool == "ram"


def test_layers_that_are_asked_for_are_not_changed() -> None:
    choice = choose(gpu(0, 2), options={"gpu_layers": 30}, context=4096, slots=1)
    assert choice.target.offloaded(LAYERS) == 30, "it does not fit, and the host refuses it by its bytes"
    assert choose(gpu(0), options={"gpu_layers": 0}).target.devices == ()
    assert choose(gpu(0), options={"gpu_layers": 500}).target.offloaded(LAYERS) == LAYERS + 1


def test_an_automatic_context_takes_half_of_the_remaining_memory() -> None:
    choice = choose(gpu(0, 12))
    taken, whole = needed(choice.target, choice.context, choice.slots)["cuda:0"], weights(choice.target)["cuda:0"]
    assert taken <= whole + (12 * GIB - whole) // 2
    assert (choice.context, choice.slots) == (4864, 4)


def test_a_model_partly_on_the_cpu_takes_no_more_context_than_is_useful() -> None:
    choice = choose(gpu(0, 4))
    assert 0 < choice.target.offloaded(LAYERS) < LAYERS and choice.context == 4096


@pytest.mark.parametrize(
    ("asked", "pools"),
    [("auto", ["cuda:0", "cuda:1"]), ("cuda", ["cuda:0", "cuda:1"]), ("cuda:1", ["cuda:1"]), ("cpu", [])],
)
def test_devices_a_manifest_allows(asked: str, pools: list[str]) -> None:
    seen = (gpu(0), gpu(1), gpu(0, kind="Vulkan", integrated=True))
    assert [device.pool for device in candidates(asked, seen)] == pools


def test_an_integrated_device_alone_is_used() -> None:
    assert len(candidates("auto", (gpu(0, kind="Vulkan", integrated=True),))) == 1


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(LoadFailed, match=r"cuda:3 is not there .*cuda:0"):
        candidates("cuda:3", (gpu(0),))


def test_a_named_device_is_not_split() -> None:
    choice = choose(gpu(0, 6), gpu(1, 24), device="cuda:0", context=2048, slots=1)
    assert [device.pool for device in choice.target.devices] == ["cuda:0"]


@pytest.mark.parametrize(("mode", "split"), [("layer", "layer"), ("row", "row"), ("auto", "none"), ("none", "none")])
def test_split_modes(mode: str, split: str) -> None:
    choice = choose(gpu(0), gpu(1), options={"split_mode": mode}, context=2048, slots=1)
    assert (choice.target.split, len(choice.target.devices)) == (split, 1 if split == "none" else 2)


def test_proportions_of_the_manifest() -> None:
    choice = choose(gpu(0), gpu(1), options={"tensor_split": [1, 3]}, context=2048, slots=1)
    assert (choice.target.split, choice.target.shares) == ("layer", (1, 3))
    assert Counter(choice.target.pools(LAYERS)) == {"cuda:0": 9, "cuda:1": 24}
    only = choose(gpu(0), gpu(1), options={"tensor_split": [0, 1], "split_mode": "row"}, context=2048, slots=1)
    assert set(only.target.pools(LAYERS)) == {"cuda:1"}


def test_the_main_device_of_the_manifest() -> None:
    choice = choose(gpu(0), gpu(1, 8), options={"main_gpu": 1}, context=2048, slots=1)
    assert [device.pool for device in choice.target.devices] == ["cuda:1"]


@pytest.mark.parametrize(
    ("options", "words"),
    [({"tensor_split": [1]}, "tensor_split has 1 .* there are 2"), ({"main_gpu": 2}, "main_gpu is 2, and there are 2")],
)
def test_options_for_other_devices(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LoadFailed, match=words):
        choose(gpu(0), gpu(1), options=options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cache_type_v": "q8_0", "flash_attention": "off"}, "needs flash attention"),
        ({"cpu_moe": True, "n_cpu_moe": 3}, "set one of the two"),
        ({"tensor_split": [1, 1], "split_mode": "none"}, "`tensor_split` needs `split_mode`"),
        ({"tensor_split": [0, 0]}, "all zeros"),
        ({"main_gpu": 0, "tensor_split": [1, 1]}, "not split"),
        ({"main_gpu": 0, "split_mode": "layer"}, "not split"),
        ({"tensor_split": []}, "length >= 1"),
        ({"tensor_split": [-1]}, ">= 0"),
        ({"split_mode": "rows"}, "rows"),
        ({"adapters": {"": {"path": "x"}}}, "regex"),
        ({"adapters": {"a@b": {"path": "x"}}}, "regex"),
        ({"adapters": {"a": {"path": ""}}}, "length >= 1"),
        ({"adapters": {"a": {"path": "x", "scales": 2}}}, "scales"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(options, LlamaOptions)


def test_quantised_values_are_fine_with_flash_attention() -> None:
    for flash in ("auto", "on"):
        msgspec.convert({"cache_type_v": "q8_0", "flash_attention": flash}, LlamaOptions)
    msgspec.convert({"cache_type_k": "q8_0", "flash_attention": "off"}, LlamaOptions)


def test_a_second_attempt_is_smaller() -> None:
    assert choose(gpu(0), context=4096, attempt=1).slots == 2
    less = choose(gpu(0), context=4096, slots=1, attempt=1)
    assert less.target.offloaded(LAYERS) == 24, "nothing else is open: fewer layers"
    with pytest.raises(OutOfMemory):
        choose(gpu(0), context=4096, slots=1, attempt=1, options={"gpu_layers": 33})


@pytest.mark.parametrize(
    ("free", "held", "memory", "room"),
    [
        (10, 0, {}, 10),
        (10, 9, {}, 19),  # other instances would be evicted for it
        (23, 6, {}, 24 * 0.95),  # never more than there is, less the driver's
        (20, 0, {"cuda:0": 12 * GIB}, 12),
        (5, 4, {"cuda:0": 12 * GIB}, 9),  # somebody else on this machine has the rest
    ],
)
def test_available_memory_of_a_device(free: int, held: int, memory: dict[str, int], room: float) -> None:
    load = Load(
        manifest=Manifest(task="chat", model="x"),
        path="x",
        engine="llama",
        memory={"ram": 7} | memory,
        held={"cuda:0": held * GIB},
    )
    assert available(load, (gpu(0, free),)) == {"ram": 7, "cuda:0": int(room * GIB)}


def test_experts_stay_with_the_cpu() -> None:
    target = Target(devices=(gpu(0),))
    assert weights(target, experts=10)["cuda:0"] == LAYERS * LAYER + HEAD - 10 * LAYER // 2
    assert weights(target, experts=LAYERS)["ram"] == INPUT + LAYERS * LAYER // 2


def test_rows_are_spread_by_share() -> None:
    target = Target(devices=(gpu(0), gpu(1)), split="row", shares=(1.0, 3.0))
    taken = weights(target)
    assert taken["cuda:1"] == 3 * taken["cuda:0"] and taken["ram"] == INPUT


def test_weights_by_layer() -> None:
    names = {"token_embd.weight": 7, "blk.0.attn_q.weight": 1, "blk.1.ffn_up_exps.weight": 5, "blk.1.ffn_up.weight": 2}
    blocks = layer_weights(names | {"output_norm.weight": 1}, 2)
    assert blocks == LayerWeights(layers=(1, 7), experts=(0, 5), output=8, rest=7), (
        "an output that is the embedding again"
    )
    assert layer_weights(names | {"output.weight": 3}, 2).output == 3


def test_patterns_of_experts() -> None:
    import re

    [every] = modelling.patterns(LlamaOptions(cpu_moe=True))
    some = modelling.patterns(LlamaOptions(n_cpu_moe=2))
    assert modelling.patterns(LlamaOptions()) == [] and len(some) == 2
    for name in ("ffn_up_exps", "ffn_gate_exps", "ffn_down_exps", "ffn_gate_up_exps", "ffn_up_chexps"):
        assert re.search(every, f"blk.7.{name}.weight")
        assert re.search(some[1], f"blk.1.{name}.weight") and not re.search(some[1], f"blk.11.{name}.weight")
    assert not re.search(every, "blk.7.ffn_up.weight") and not re.search(every, "blk.7.ffn_gate_inp.weight")


@pytest.mark.parametrize(
    "target",
    [
        Target(),
        Target(devices=(gpu(1),), layers=7),
        Target(devices=(gpu(0), gpu(2)), layers=-1, split="layer", shares=(1.5, 2.25)),
        Target(devices=(gpu(0), gpu(1)), layers=40, split="row", shares=(1.0, 1.0)),
    ],
)
def test_a_plan_contains_its_layout(target: Target) -> None:
    seen = (gpu(0), gpu(1), gpu(2))
    again = from_detail(msgspec.json.decode(msgspec.json.encode(to_detail(target, LAYERS))), seen)
    assert (again.devices, again.split, again.shares) == (target.devices, target.split, target.shares)
    assert again.pools(LAYERS) == target.pools(LAYERS)


def test_a_planned_device_that_is_gone() -> None:
    with pytest.raises(LoadFailed, match="cuda:2 was there"):
        from_detail(to_detail(Target(devices=(gpu(2),)), LAYERS), (gpu(0),))


@given(st.integers(0, 100), st.integers(0, 100), st.integers(-5, 120))
def test_bisection(low: int, size: int, limit: int) -> None:
    high = low + size
    assert largest(low, high, lambda n: n <= limit) == min(max(limit, low), high)


@given(st.lists(st.floats(0, 50), min_size=1, max_size=4), st.integers(0, 40))
def test_every_layer_has_a_place(shares: list[float], layers: int) -> None:
    devices = tuple(gpu(number) for number in range(len(shares)))
    target = Target(devices=devices, shares=tuple(shares), split="layer", layers=layers)
    pools = target.pools(LAYERS)
    assert len(pools) == LAYERS + 1 and sum(pool != "ram" for pool in pools) == min(layers, LAYERS + 1)
    assert pools == sorted(pools, key=lambda pool: -1 if pool == "ram" else int(pool[-1])), "in the devices' order"
