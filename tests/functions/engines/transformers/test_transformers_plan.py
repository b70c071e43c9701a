"""What is known before weights are read: files, device, precision, lengths, bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import safetensors.torch
import torch

from functions.engines.checkpoint.folder import Folder
from functions.engines.transformers import device, plan, precision
from functions.engines.transformers.options import TransformersOptions
from host.errors import LoadFailed, ManifestError
from host.function import Load
from host.manifest import Manifest
from host.manifest.schema import docs


def load(path: Path, attempt: int = 0, **manifest: Any) -> Load:
    made = Manifest(task="embeddings", model="x", name="m", **manifest)
    return Load(manifest=made, path=str(path), engine="transformers", threads=2, attempt=attempt)


@pytest.mark.parametrize(("dtype", "size"), [("fp32", 90_856_960), ("bf16", 45_430_528)])
def test_weights_are_counted_from_headers(minilm: Path, dtype: str, size: int) -> None:
    found = plan.encoder(load(minilm, quantization=dtype), TransformersOptions(), Folder(minilm), 256)
    assert found.detail["weights"] == size
    assert size < found.bytes["ram"] < 3 * size + (64 << 20)
    assert found.device == "cpu"
    assert found.context == 256


def test_more_tokens_take_more(minilm: Path) -> None:
    sizes = [
        plan.encoder(load(minilm), TransformersOptions(batch_tokens=tokens), Folder(minilm), 256).bytes["ram"]
        for tokens in (256, 2048, 16_384)
    ]
    assert sizes == sorted(set(sizes))


def test_eager_attention_takes_more(minilm: Path) -> None:
    found = {
        kind: plan.encoder(load(minilm), TransformersOptions(attention=kind), Folder(minilm), 256).bytes["ram"]
        for kind in ("eager", "sdpa")
    }
    assert found["eager"] > found["sdpa"]


def test_a_second_attempt_takes_less_unless_the_manifest_says(minilm: Path) -> None:
    def tokens(attempt: int, options: TransformersOptions) -> Any:
        return plan.encoder(load(minilm, attempt), options, Folder(minilm), 256).detail["batch_tokens"]

    assert tokens(1, TransformersOptions()) < tokens(0, TransformersOptions())
    assert tokens(1, TransformersOptions(batch_tokens=4096)) == 4096


def test_long_inputs_take_memory_and_make_no_batch_larger(minilm: Path) -> None:
    short, long = (plan.encoder(load(minilm), TransformersOptions(), Folder(minilm), count) for count in (256, 40_960))
    assert long.bytes["ram"] > 10 * short.detail["activations"]
    assert long.detail["batch_tokens"] == short.detail["batch_tokens"]


def test_slots_are_noted_as_unused(minilm: Path) -> None:
    found = plan.encoder(load(minilm, slots=4), TransformersOptions(), Folder(minilm), 256)
    assert any("slots" in note for note in found.notes)


@pytest.mark.parametrize("wanted", ["cuda", "cuda:1", "cuda:99", "mps"])
def test_a_device_that_is_not_there(wanted: str) -> None:
    if wanted.startswith("cuda") and torch.cuda.device_count() > int(wanted.partition(":")[2] or 0):
        pytest.skip("this machine has it")
    if wanted == "mps" and torch.backends.mps.is_available():
        pytest.skip("this machine has it")
    with pytest.raises(LoadFailed, match=f"{wanted} is not available") as caught:
        device.choose(wanted)
    assert caught.value.param == "device"


def test_cpu_is_always_there() -> None:
    assert device.choose("cpu") == torch.device("cpu")
    assert device.pool(torch.device("cpu")) == "ram"
    assert device.pool(torch.device("cuda", 1)) == "cuda:1"
    assert device.pools(torch.device("cpu")) == {}


@pytest.mark.parametrize(
    ("quantization", "kind", "bf16", "stored", "dtype"),
    [
        (None, "cpu", True, "float32", torch.bfloat16),
        (None, "cpu", True, None, torch.bfloat16),
        (None, "cpu", False, "bfloat16", torch.float32),
        (None, "cpu", False, None, torch.float32),
        (None, "cuda", True, "bfloat16", torch.bfloat16),
        (None, "cuda", True, None, torch.float32),
        (None, "cuda", True, "nonesuch", torch.float32),
        (None, "cuda", True, "int64", torch.float32),
        ("bf16", "cpu", False, None, torch.bfloat16),
        ("BF16", "cuda", False, "float16", torch.bfloat16),
        ("fp32", "cpu", True, "bfloat16", torch.float32),
        ("fp32", "cuda", True, "float16", torch.float32),
    ],
)
def test_precision(
    monkeypatch: pytest.MonkeyPatch,
    quantization: str | None,
    kind: str,
    bf16: bool,
    stored: str | None,
    dtype: torch.dtype,
) -> None:
    monkeypatch.setattr(precision, "has_native_bf16", lambda: bf16)
    found = precision.choose(quantization, torch.device(kind), stored)
    assert found.dtype == dtype
    assert found.stated is (quantization is not None)
    assert not found.int8
    assert found.checked is (kind == "cpu" and dtype != torch.float32)
    assert found.first == (torch.float32 if kind == "cpu" else dtype)
    assert found.name == precision.name(dtype)


@pytest.mark.parametrize("bf16", [True, False])
def test_int8_is_served_on_the_cpu_and_checked(monkeypatch: pytest.MonkeyPatch, bf16: bool) -> None:
    monkeypatch.setattr(precision, "has_native_bf16", lambda: bf16)
    found = precision.choose("INT8", torch.device("cpu"), "bfloat16")
    assert (found.name, found.int8, found.stated, found.checked) == ("int8", True, True, True)
    assert found.dtype == found.first == torch.float32


@pytest.mark.parametrize(
    ("quantization", "kind", "hint"),
    [
        ("int8", "cuda", "device: cpu"),
        ("int4", "cpu", "take int8 or bf16"),
        ("int4", "cuda", "take int8 or bf16"),
        ("Q4_K_M", "cpu", "expected bf16, fp32 or int8"),
        ("fp8", "cpu", "expected bf16, fp32 or int8"),
    ],
)
def test_precision_refused(quantization: str, kind: str, hint: str) -> None:
    with pytest.raises(ManifestError, match=hint) as caught:
        precision.choose(quantization, torch.device(kind), None)
    assert caught.value.key == "quantization"


@pytest.mark.parametrize(
    ("machine", "known", "expected"),
    [
        ("x86_64", {"avx512_bf16": True}, True),
        ("AMD64", {"amx_bf16": True}, True),
        ("x86_64", {"avx2": True, "avx512_bf16": False}, False),
        ("x86_64", {}, False),
    ],
)
def test_processors_that_compute_bf16(
    monkeypatch: pytest.MonkeyPatch, machine: str, known: dict[str, bool], expected: bool
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known)
    assert precision.has_native_bf16() is expected


def ram(path: Path, **manifest: Any) -> int:
    return plan.encoder(load(path, **manifest), TransformersOptions(), Folder(path), 256).bytes["ram"]


def test_what_is_checked_is_planned_with_its_weights_in_fp32(minilm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for quantization in ("bf16", "int8"):
        found = plan.encoder(load(minilm, quantization=quantization), TransformersOptions(), Folder(minilm), 256)
        assert found.detail["dtype"] == quantization
        assert found.bytes["ram"] > 90_856_960
        assert found.detail["weights"] < 90_856_960
    monkeypatch.setattr(precision, "has_native_bf16", lambda: True)
    found = plan.encoder(load(minilm), TransformersOptions(), Folder(minilm), 256)
    assert found.detail["dtype"] == "bf16"
    assert "fp32 if the model does not survive it" in found.notes[0]
    assert found.bytes["ram"] >= ram(minilm, quantization="fp32")  # it may have to become that


def test_int8_counts_matrices_as_a_byte_each_but_not_embeddings(tmp_path: Path) -> None:
    tensors = {
        "embeddings.word_embeddings.weight": torch.zeros(10, 4),
        "layer.query.weight": torch.zeros(4, 4),
        "layer.query.bias": torch.zeros(4),
    }
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    assert Folder(tmp_path).weights(4, 1) == 160 + 16 + 16
    assert Folder(tmp_path).weights(2) == 80 + 32 + 8


def test_batches_side_by_side_take_more(minilm: Path) -> None:
    one, two = (
        plan.encoder(msgspec.structs.replace(load(minilm), threads=threads), TransformersOptions(), Folder(minilm), 256)
        for threads in (1, 2)
    )
    assert two.detail["activations"] == 2 * one.detail["activations"]


def test_every_option_is_documented_and_has_a_default() -> None:
    fields = {field.name for field in msgspec.structs.fields(TransformersOptions)}
    assert set(docs(TransformersOptions)) == fields
    assert msgspec.json.decode(b"{}", type=TransformersOptions) == TransformersOptions()


@pytest.mark.parametrize(
    "options",
    [
        {"batch_tokens": 0},
        {"batch_tokens": "many"},
        {"pooling": "median"},
        {"nonesuch": 1},
    ],
)
def test_options_refused(options: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json.dumps(options), type=TransformersOptions)
