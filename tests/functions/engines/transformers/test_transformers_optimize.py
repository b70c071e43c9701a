"""Models made faster while they load: what they survive is kept, what they do not is taken back, and it is said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loads
import msgspec
import numpy as np
import pytest
import safetensors.torch
import tinymodels
import torch
from torch import nn

from functions.embeddings.api import EmbeddingsRequest
from functions.embeddings.transformers import TransformersEmbeddings
from functions.engines.batching.item import Item
from functions.engines.transformers import linear, optimize, packing, precision
from functions.engines.transformers.classifier import TransformersClassifierModel
from functions.engines.transformers.linear import Int8Linear, PrepackedLinear
from functions.engines.transformers.numerics import CheckOutput
from functions.engines.transformers.precision import FP32, Precision
from host.errors import LoadFailed, OutOfMemory

BF16 = Precision(dtype=torch.bfloat16, checked=True)
STATED = Precision(dtype=torch.bfloat16, checked=True, stated=True)
INT8 = Precision(dtype=torch.float32, int8=True, checked=True, stated=True)
TEXTS = ["river stone light", "winter music train bread letter garden", "paper"]

onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN")
bf16 = pytest.mark.skipif(not precision.has_native_bf16(), reason="this processor does not compute in bf16")


class Model(nn.Module):
    """One matrix; `offset` is added before and taken away after, which costs bf16 its last digits."""

    def __init__(self, offset: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.offset = offset
        self.layer = nn.Linear(32, 32)
        self.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(x) + self.offset - self.offset
        return found

    @property
    def kind(self) -> str:
        if isinstance(self.layer, Int8Linear):
            return "int8"
        return precision.name(self.layer.weight.dtype)


def asked(model: Any, *, packed: bool, of_logits: bool = False) -> CheckOutput:
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(2))
    plain = isinstance(model.layer, nn.Linear | PrepackedLinear)
    found = model(x.to(model.layer.weight.dtype) if plain else x)
    return CheckOutput(rows=found.float(), of_logits=of_logits)


def failing(when: Callable[[Any, bool], bool], error: Exception) -> Any:
    """Return an `asked` that raises for some models."""

    def ask(model: Any, *, packed: bool) -> CheckOutput:
        if when(model, packed):
            raise error
        return asked(model, packed=packed)

    return ask


class Reload:
    """Makes the model anew and counts how often."""

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset
        self.count = 0

    def __call__(self) -> Model:
        self.count += 1
        return Model(self.offset)


@onednn
@bf16
@pytest.mark.parametrize("wanted", [BF16, STATED])
def test_a_model_that_survives_bf16_is_computed_in_it(wanted: Precision) -> None:
    reload = Reload()
    found = optimize.optimize(Model(), wanted, asked, reload)
    assert found.precision == wanted
    assert found.model.kind == "bf16"
    assert found.prepacked
    assert found.note.startswith(("bf16: cosine 0.9999", "bf16: cosine 1.0"))
    assert reload.count == 0


@onednn
@bf16
@pytest.mark.parametrize("of_logits", [False, True])
def test_a_model_that_bf16_hurts_stays_in_fp32_and_says_so(of_logits: bool) -> None:
    reload = Reload(300.0)

    def ask(model: Any, *, packed: bool) -> CheckOutput:
        return asked(model, packed=packed, of_logits=of_logits)

    before = ask(Model(300.0), packed=False).rows
    found = optimize.optimize(Model(300.0), BF16, ask, reload)
    assert found.precision == FP32
    assert found.model.kind == "fp32"
    assert isinstance(found.model.layer, PrepackedLinear)
    assert reload.count == 1
    torch.testing.assert_close(ask(found.model, packed=False).rows, before, atol=1e-3, rtol=1e-3)
    assert found.note.startswith("bf16 refused: ")
    assert found.note.endswith("; fp32 instead")
    assert ("of their spread" if of_logits else "cosine 0.") in found.note


@onednn
@bf16
def test_a_stated_bf16_is_kept_and_says_what_was_found() -> None:
    found = optimize.optimize(Model(300.0), STATED, asked, Reload(300.0))
    assert found.precision == STATED
    assert found.model.kind == "bf16"
    assert found.note.startswith("bf16 as the manifest says, although: cosine 0.")


@onednn
def test_int8_that_a_model_survives() -> None:
    found = optimize.optimize(Model(), INT8, asked, Reload())
    assert found.model.kind == found.precision.name == "int8"
    assert found.note.startswith(("int8: cosine 0.99", "int8: cosine 1.0"))


@onednn
def test_int8_that_a_model_does_not_survive_is_refused_with_numbers() -> None:
    model = Model()
    model.layer.weight[:, 0] = 3e4  # one step of 8 bits is more than all other weights together
    model.layer.weight[:, 0] -= torch.randn(32)

    def ask(model: Any, *, packed: bool) -> CheckOutput:
        x = torch.randn(4, 32, generator=torch.Generator().manual_seed(2))
        x[:, 0] = 1e-4
        return CheckOutput(rows=model(x) - 3.0, of_logits=False)

    with pytest.raises(LoadFailed, match=r"does not survive int8: cosine -?0\.\d+ to fp32, at least 0\.98") as caught:
        optimize.optimize(model, INT8, ask, Reload())
    assert caught.value.param == "quantization"
    assert "take bf16 or fp32" in caught.value.message


@onednn
def test_int8_that_cannot_be_computed_is_refused() -> None:
    ask = failing(lambda model, packed: model.kind == "int8", AttributeError("weight"))
    with pytest.raises(LoadFailed, match="cannot be computed in it"):
        optimize.optimize(Model(), INT8, ask, Reload())


@onednn
@bf16
def test_bf16_that_raises_in_its_new_layout_is_computed_in_the_old_one() -> None:
    reload = Reload()
    found = optimize.optimize(
        Model(),
        BF16,
        failing(lambda model, packed: isinstance(model.layer, PrepackedLinear), RuntimeError("layout")),
        reload,
    )
    assert found.model.kind == "bf16"
    assert type(found.model.layer) is nn.Linear
    assert not found.prepacked
    assert reload.count == 1


@onednn
@bf16
def test_bf16_that_always_raises_becomes_fp32() -> None:
    found = optimize.optimize(
        Model(), BF16, failing(lambda model, packed: model.kind == "bf16", TypeError("no")), Reload()
    )
    assert found.precision == FP32
    assert "cannot be computed in it" in found.note
    asked(found.model, packed=False)


@onednn
def test_fp32_is_laid_out_anew_and_nothing_is_said() -> None:
    reload = Reload()
    found = optimize.optimize(Model(), FP32, asked, reload)
    assert (found.prepacked, found.note, found.precision, reload.count) == (True, "", FP32, 0)
    assert isinstance(found.model.layer, PrepackedLinear)


@onednn
@pytest.mark.parametrize("error", [None, RuntimeError("layout")])
def test_a_layout_that_changes_the_answer_is_taken_back(error: Exception | None) -> None:
    def ask(model: Any, *, packed: bool) -> CheckOutput:
        changed = isinstance(model.layer, PrepackedLinear)
        if changed and error:
            raise error
        found = asked(model, packed=packed)
        return msgspec.structs.replace(found, rows=found.rows + 0.05) if changed else found

    reload = Reload()
    found = optimize.optimize(Model(), FP32, ask, reload)
    assert type(found.model.layer) is nn.Linear
    assert not found.prepacked
    assert reload.count == 1


def test_without_onednn_nothing_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    reload = Reload()
    found = optimize.optimize(Model(), FP32, asked, reload)
    assert type(found.model.layer) is nn.Linear
    assert (found.prepacked, reload.count) == (False, 0)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
@pytest.mark.parametrize("wanted", [FP32, BF16, STATED, INT8])
@pytest.mark.parametrize("at", [0, 1])
def test_where_memory_runs_out_it_is_told(error: Exception, wanted: Precision, at: int) -> None:
    calls: list[bool] = []

    def ask(model: Any, *, packed: bool) -> CheckOutput:
        calls.append(packed)
        if len(calls) > at:
            raise error
        return asked(model, packed=packed)

    if at and not (torch.backends.mkldnn.is_available() and precision.has_native_bf16()):
        pytest.skip("this processor lays nothing out, so the model is not asked again")
    with pytest.raises(type(error)) as caught:
        optimize.optimize(Model(), wanted, ask, Reload())
    assert caught.value is error


@onednn
def test_where_memory_runs_out_while_laying_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(model: Any, make: Any) -> int:
        raise OutOfMemory("none left")

    monkeypatch.setattr(linear, "replace", replace)
    with pytest.raises(OutOfMemory):
        optimize.optimize(Model(), FP32, asked, Reload())


@onednn
def test_a_build_without_8_bits_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(model: Any, make: Any) -> int:
        raise AttributeError("'_OpNamespace' 'onednn' object has no attribute 'qlinear_prepack'")

    monkeypatch.setattr(linear, "replace", replace)
    with pytest.raises(LoadFailed, match="int8 is not served by this build of torch") as caught:
        optimize.optimize(Model(), INT8, asked, Reload())
    assert caught.value.param == "quantization"


@pytest.mark.parametrize(
    ("wanted", "kind", "said"),
    [
        (FP32, "fp32", ""),
        (BF16, "fp32", "fp32, as bf16 was not compared"),
        (STATED, "bf16", "bf16, not compared with fp32"),
        pytest.param(INT8, "int8", "int8, not compared with fp32", marks=onednn),
    ],
)
def test_a_model_that_does_not_take_texts_alone(wanted: Precision, kind: str, said: str) -> None:
    reload = Reload()
    found = optimize.optimize(Model(), wanted, failing(lambda model, packed: True, TypeError("pixel_values")), reload)
    assert found.model.kind == found.precision.name == kind
    assert found.note.startswith(said)
    assert bool(found.note) is bool(said)
    assert (found.packed, reload.count) == (False, 0)


@pytest.mark.parametrize("error", [None, RuntimeError("shapes")])
def test_a_model_that_is_not_the_same_when_packed_is_computed_padded(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(packing, "prepare", lambda model: True)
    seen: list[bool] = []

    def ask(model: Any, *, packed: bool) -> CheckOutput:
        seen.append(packed)
        if packed and error:
            raise error
        found = asked(model, packed=packed)
        return msgspec.structs.replace(found, rows=found.rows + packed * 0.1)

    found = optimize.optimize(Model(), FP32, ask, Reload())
    assert not found.packed
    assert seen[:2] == [False, True]
    assert not any(seen[2:])


def test_a_model_that_is_the_same_is_computed_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[Any] = []
    monkeypatch.setattr(packing, "prepare", lambda model: prepared.append(model) is None)
    model = Model()
    assert optimize.optimize(model, FP32, asked, Reload()).packed
    assert prepared == [model]
    assert not optimize.optimize(Model(), FP32, asked, Reload(), pack=False).packed
    assert prepared == [model]


@onednn
@bf16
def test_a_model_that_is_read_again_is_prepared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[Any] = []
    monkeypatch.setattr(packing, "prepare", lambda model: prepared.append(model) is None)
    found = optimize.optimize(Model(300.0), BF16, asked, Reload(300.0))
    assert found.packed
    assert len(prepared) == 2
    assert found.model is prepared[1]


# Whole models, through the engine.


@pytest.fixture
def headed() -> Iterator[Callable[..., TransformersClassifierModel]]:
    opened: list[TransformersClassifierModel] = []

    def open_(folder: Path, options: dict[str, Any] | None = None, **manifest: Any) -> TransformersClassifierModel:
        load = loads.given("classify", folder, options, **manifest)
        plan = TransformersClassifierModel.plan(load)
        opened.append(TransformersClassifierModel.load(load, plan, loads.ignore, "sequence"))
        return opened[-1]

    yield open_
    for model in opened:
        model.close()


def fragile(folder: Path) -> Path:
    """Save a classifier whose head sees differences of thousandths around one, where steps of bf16 are as large."""
    made = tinymodels.headed(folder, "bert", "sequence", ["a", "b", "c"])
    path = made / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    weights["bert.pooler.dense.bias"] = torch.full_like(weights["bert.pooler.dense.bias"], 3.0)
    head = torch.randn(3, 32, generator=torch.Generator().manual_seed(3)) * 1000
    weights["classifier.weight"] = head - head.mean(1, keepdim=True)
    weights["bert.pooler.dense.weight"] *= 0.3
    safetensors.torch.save_file(weights, path, metadata={"format": "pt"})
    return made


def logits(model: TransformersClassifierModel) -> np.ndarray:
    async def ask() -> list[Any]:
        items = [Item(ids=ids) for ids in await model.tokenizer.encode(TEXTS)]
        return await model.logits(items)

    return np.stack(asyncio.run(ask()))


@onednn
@bf16
@pytest.mark.parametrize("stated", [None, "bf16"])
def test_a_classifier_that_bf16_hurts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headed: Any, stated: str | None
) -> None:
    monkeypatch.setattr(precision, "has_native_bf16", lambda: True)
    folder = fragile(tmp_path)
    expected = logits(headed(folder, quantization="fp32"))
    model = headed(folder, quantization=stated)
    detail = model.detail()
    assert detail["dtype"] == (stated or "fp32")
    assert "logits differ by" in detail["precision"]
    assert ("as the manifest says" if stated else "fp32 instead") in detail["precision"]
    difference = np.abs(logits(model) - expected).max() / np.ptp(expected)
    assert difference < 1e-3 if stated is None else difference > 0.01


@onednn
@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "modernbert", "deberta-v2", "mpnet", "qwen3"])
@pytest.mark.parametrize("quantization", ["fp32", "int8"])
def test_classifiers_of_each_architecture(tmp_path: Path, headed: Any, kind: str, quantization: str) -> None:
    folder = tinymodels.headed(tmp_path, kind, "sequence", ["a", "b", "c"])
    plain = tuning_off(headed, folder)
    model = headed(folder, quantization=quantization)
    assert model.detail()["dtype"] == quantization
    packs = model.detail()["padding"] == "none"
    assert packs is (kind not in ("deberta-v2", "mpnet"))
    expected, found = logits(plain), logits(model)
    bound = 1e-4 if quantization == "fp32" else 0.15
    assert np.abs(found - expected).max() <= bound * max(1.0, float(np.ptp(expected)))


def tuning_off(headed: Any, folder: Path) -> TransformersClassifierModel:
    """Return the model as Transformers computes it, padded and in its own layout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "prepare", lambda model: False)
        patch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
        model: TransformersClassifierModel = headed(folder, quantization="fp32")
    assert model.detail()["padding"] != "none"
    return model


def test_attention_that_the_manifest_states_is_not_packed(tmp_path: Path, headed: Any) -> None:
    folder = tinymodels.headed(tmp_path, "bert", "sequence", ["a", "b", "c"])
    packed, padded = headed(folder), headed(folder, {"attention": "eager"})
    assert packed.detail()["padding"] == "none"
    assert padded.detail()["padding"] == "to the longest of a batch"
    assert np.abs(logits(packed) - logits(padded)).max() < 1e-4


@pytest.fixture(scope="module")
def embedders() -> Iterator[Callable[..., TransformersEmbeddings]]:
    opened: list[TransformersEmbeddings] = []

    def open_(path: Path, **manifest: Any) -> TransformersEmbeddings:
        load = loads.given("embeddings", path, **manifest)
        opened.append(TransformersEmbeddings.load(load, TransformersEmbeddings.plan(load), loads.ignore))
        return opened[-1]

    yield open_
    for instance in opened:
        instance.close()


def embedded(instance: TransformersEmbeddings) -> np.ndarray:
    texts = ["A cold frame.", "Rain before noon, and wind from the north-west.", "word " * 150, "?"]
    found = asyncio.run(instance.answer(EmbeddingsRequest(model="m", input=texts)))
    return np.frombuffer(found.data, dtype="<f4").reshape(len(texts), -1)


@onednn
@pytest.mark.parametrize(
    ("quantization", "computes", "dtype", "least"),
    [
        pytest.param(None, True, "bf16", 0.999, marks=bf16),
        (None, False, "fp32", 0.999999),
        pytest.param("bf16", False, "bf16", 0.999, marks=bf16),
        ("int8", True, "int8", 0.98),
    ],
)
def test_minilm(
    minilm: Path,
    monkeypatch: pytest.MonkeyPatch,
    embedders: Any,
    quantization: str | None,
    computes: bool,
    dtype: str,
    least: float,
) -> None:
    monkeypatch.setattr(precision, "has_native_bf16", lambda: computes)
    exact = embedded(embedders(minilm, quantization="fp32"))
    instance = embedders(minilm, quantization=quantization)
    detail = instance.info().detail
    assert detail["dtype"] == dtype
    assert detail["padding"] == "none"
    assert ("precision" in detail) is (dtype != "fp32")
    assert detail.get("precision", f"{dtype}: cosine").startswith(f"{dtype}: cosine")
    found = embedded(instance)
    assert (found * exact).sum(1).min() >= least
    assert np.array_equal(found, exact) is False or dtype == "fp32"


def test_a_model_that_gives_no_numbers_is_refused(tmp_path: Path) -> None:
    folder = tinymodels.tiny(tmp_path)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["encoder.layer.0.output.dense.weight"][0, 0] = float("nan")
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    load = loads.given("embeddings", folder, quantization="fp32")
    plan = TransformersEmbeddings.plan(load)
    with pytest.raises(LoadFailed, match="numbers are not finite for plain sentences"):
        TransformersEmbeddings.load(load, plan, loads.ignore)


@pytest.mark.parametrize("quantization", ["bf16", "fp32"])
def test_a_processor_that_lays_nothing_out_computes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quantization: str
) -> None:
    monkeypatch.setattr(linear, "can_prepack", lambda dtype: False)
    load = loads.given("embeddings", tinymodels.tiny(tmp_path), quantization=quantization)
    made = TransformersEmbeddings.load(load, TransformersEmbeddings.plan(load), loads.ignore)
    assert made.info().detail["dtype"] == quantization
    assert not any(type(module) is linear.PrepackedLinear for module in made._routes[""].model._encoder.model.modules())
    made.close()
