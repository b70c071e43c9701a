"""Logits of ONNX models: those of Transformers, in any company, and clear reasons where a graph cannot give any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxmodels
import pytest
import tinymodels
import torch
import transformers
from onnxmodels import FLOATS, given, graph, node

from functions.engines.batching.item import Item
from functions.engines.onnx import native_library
from functions.engines.onnx.classifier import OnnxClassifierModel
from host.errors import ColdframeError, InvalidRequest, LoadFailed, OutOfMemory

pytestmark = pytest.mark.anyio

TEXTS = ["river stone light", "number", "window garden paper winter music train bread letter river stone", "a b light"]


async def items(model: OnnxClassifierModel, texts: list[str]) -> list[Item]:
    return [Item(ids=ids) for ids in await model.tokenizer.encode(texts)]


def reference(folder: Path, head: str, item: Item) -> np.ndarray:
    model = onnxmodels.AUTO[head][0].from_pretrained(folder).eval()
    types = {} if item.types is None else {"token_type_ids": torch.tensor(item.types[None], dtype=torch.long)}
    with torch.inference_mode():
        return model(input_ids=torch.tensor(item.ids[None], dtype=torch.long), **types).logits[0].numpy()


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
@pytest.mark.parametrize("head", ["sequence", "token"])
async def test_logits_are_those_of_transformers(
    tiny: Callable[..., Path], opener: Callable[..., OnnxClassifierModel], kind: str, head: str
) -> None:
    folder = tiny(kind, head)
    model = opener(folder, head)
    given_ = await items(model, TEXTS)
    for item, found in zip(given_, await model.logits(given_), strict=True):
        expected = reference(folder, head, item)
        assert found.shape == expected.shape
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-4)


async def test_the_segments_of_a_pair_count(
    tiny: Callable[..., Path], opener: Callable[..., OnnxClassifierModel]
) -> None:
    folder = tiny("bert", "sequence")
    model = opener(folder, "sequence")
    pair = model.tokenizer.pair.item(model.tokenizer.bare("river stone"), model.tokenizer.bare("garden"))
    assert pair.types is not None
    assert set(pair.types) == {0, 1}
    (found,), (bare,) = await model.logits([pair]), await model.logits([Item(ids=pair.ids)])
    np.testing.assert_allclose(found, reference(folder, "sequence", pair), atol=1e-4)
    assert np.abs(found - bare).max() > 1e-3


async def test_labels_limits_and_choices_are_told(
    tiny: Callable[..., Path], opener: Callable[..., OnnxClassifierModel]
) -> None:
    model = opener(tiny("roberta", "token"), "token", context=100)
    assert model.labels == ("O", "B-X", "I-X")
    assert model.longest == 100
    assert model.config["model_type"] == "roberta"
    assert model.detail() == {
        "labels": ["O", "B-X", "I-X"],
        "file": "model.onnx",
        "device": "cpu",
        "architecture": "RobertaForTokenClassification",
    }


PII = "My name is John Smith and my email is john.smith@example.com, I live in Berlin."


async def test_the_real_model_finds_what_is_private(rampart: Path, opener: Callable[..., OnnxClassifierModel]) -> None:
    model = opener(rampart, "token")
    (pieces,) = await model.tokenizer.pieces([PII])
    (logits,) = await model.logits([Item(ids=model.tokenizer.frame(pieces.ids))])
    named = [model.labels[at] for at in logits[1:-1].argmax(-1)]
    found = {PII[a:b]: label for (a, b), label in zip(pieces.spans, named, strict=True) if label != "O"}
    assert found["John"] == "B-GIVEN_NAME"
    assert found["Smith"] == "B-SURNAME"
    assert found["example"].endswith("EMAIL")
    assert "live" not in found


async def test_the_real_model_says_what_the_library_alone_says(
    rampart: Path, opener: Callable[..., OnnxClassifierModel]
) -> None:
    model = opener(rampart, "token", {"optimization": "off"})
    session = native_library.onnxruntime.InferenceSession(
        rampart / "onnx" / "model_q4.onnx", providers=["CPUExecutionProvider"]
    )
    texts = [PII[: length * 7] for length in range(1, 11)]
    given_ = await items(model, texts)
    for item, found in zip(given_, await model.logits(given_), strict=True):
        ids = item.ids[None].astype(np.int64)
        feeds = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
        expected = session.run(["logits"], feeds)[0][0]
        # What is multiplied by weights of 4 bits is rounded to 8 bits by the whole matrix, padding included.
        assert found.shape == expected.shape
        assert (found.argmax(-1) == expected.argmax(-1)).mean() > 0.95
        np.testing.assert_allclose(found, expected, atol=0.5)


@pytest.mark.parametrize(
    "kind", ["int32", "position_ids", "positions of roberta", "extra outputs", "no mask", "half", "half output"]
)
async def test_graphs_of_other_forms(small: Path, opener: Callable[..., OnnxClassifierModel], kind: str) -> None:
    shapes: dict[str, Any] = dict.fromkeys(onnxmodels.INPUTS[:2], ("batch", "tokens"))
    nodes, numbers = [FLOATS], onnx.TensorProto.INT64
    if kind == "int32":
        numbers = onnx.TensorProto.INT32
    elif kind.startswith("position"):
        shapes["position_ids"] = ("batch", "tokens")
        nodes = [node("Cast", "position_ids", "logits", to=onnx.TensorProto.FLOAT)]
        if kind == "positions of roberta":  # one row is padding's, and one before it is never used
            config = {"model_type": "roberta", "max_position_embeddings": 18, "pad_token_id": 1}
            tinymodels.write(small, {"config.json": config})
    elif kind == "no mask":
        del shapes["attention_mask"]
    elif kind == "half":
        nodes = [node("Cast", "input_ids", "h", to=10), node("Cast", "h", "logits", to=1)]
    file = graph(small / "model.onnx", nodes, inputs=shapes, kind=numbers, output=("batch", "tokens"))
    if kind == "half output":
        model = onnx.load(file)
        model.graph.node[0].attribute[0].i = model.graph.output[0].type.tensor_type.elem_type = 10
        onnx.save(model, file)
    if kind == "extra outputs":
        model = onnx.load(file)
        model.graph.node.insert(0, node("Identity", "input_ids", "other"))
        model.graph.output.insert(0, onnx.helper.make_tensor_value_info("other", numbers, ["batch", "tokens"]))
        onnx.save(model, file)
    loaded = opener(small, "sequence")
    item = Item(ids=np.array([0, 7, 2], dtype=np.int32))
    (found,) = await loaded.logits([item])
    expected = {"position_ids": [0, 1, 2], "positions of roberta": [2, 3, 4]}
    assert found.tolist() == expected.get(kind, [0, 7, 2])
    assert found.dtype == np.float32


DIVIDED = [FLOATS.__class__.FromString(FLOATS.SerializeToString())]
DIVIDED[0].output[0] = "f"
DIVIDED += [node("Sub", "f f", "zero"), node("Div", "zero zero", "logits")]
WIDE = dict.fromkeys(onnxmodels.INPUTS[:2], ("batch", "tokens"))


@pytest.mark.parametrize(
    ("made", "head", "told"),
    [
        ({"nodes": [node("Odd", "input_ids", "logits", domain="made.up")]}, "sequence", "made.up.*Odd|Odd.*made.up"),
        ({"nodes": [FLOATS], "inputs": {"pixel_values": ("b", "t"), **WIDE}}, "sequence", "an input 'pixel_values'"),
        ({"nodes": [FLOATS], "inputs": {"input_ids": (1, 128)}}, "sequence", r"only as \[1, 128\]"),
        ({"nodes": [FLOATS], "inputs": {"input_ids": ("b",)}}, "sequence", "only as"),
        ({"nodes": [node("Shape", "attention_mask", "s"), node("Cast", "s", "logits", to=1)],
          "inputs": {"attention_mask": ("b", "t")}, "output": ("n",)}, "sequence", "no input `input_ids`"),
        ({"nodes": [FLOATS], "kind": onnx.TensorProto.FLOAT}, "sequence", r"tensor\(float\), expected int64"),
        ({"nodes": [FLOATS]}, "token", r"no output of 3 dimensions such as logits; it gives logits \(2 dimensions\)"),
        ({"nodes": DIVIDED}, "sequence", "not finite"),
        ({"nodes": [*DIVIDED[:1], node("ReduceSum", "f", "logits", keepdims=1)], "output": (1, 1)}, "sequence",
         r"logits of shape \(1, 1\) for inputs of shape \(2, 6\)"),
    ],
)  # fmt: skip
def test_a_graph_that_cannot_serve_is_refused_with_the_reason(
    small: Path, opener: Callable[..., OnnxClassifierModel], made: dict[str, Any], head: str, told: str
) -> None:
    graph(small / "model.onnx", **made)
    with pytest.raises(LoadFailed, match=told) as caught:
        opener(small, head)
    assert str(small) not in caught.value.message
    assert "onnxruntime_src" not in caught.value.message


@pytest.mark.parametrize(
    ("opset", "ir", "told"), [(99, 8, "pset 99.*install a newer one"), (17, 99, "IR version: 99.*install a newer one")]
)
def test_a_file_newer_than_the_library_is_told_so(
    small: Path, opener: Callable[..., OnnxClassifierModel], opset: int, ir: int, told: str
) -> None:
    file = graph(small / "model.onnx", [FLOATS])
    model = onnx.load(file)
    model.opset_import[0].version, model.ir_version = opset, ir
    onnx.save(model, file)
    with pytest.raises(LoadFailed, match=told):
        opener(small, "sequence")


@pytest.mark.parametrize(
    ("domain", "kind"), [("ai.onnx.contrib", "PyOp"), ("com.microsoft", "PythonOp"), ("com.microsoft", "EPContext")]
)
def test_nothing_runs_but_the_librarys_own_operators(
    small: Path, opener: Callable[..., OnnxClassifierModel], domain: str, kind: str
) -> None:
    """Operators that call Python or open other libraries are in no build that is used here, and none are registered."""
    graph(small / "model.onnx", [node(kind, "input_ids", "logits", domain=domain)])
    with pytest.raises(LoadFailed, match=r"model\.onnx cannot be loaded"):
        opener(small, "sequence")


def test_weights_beside_it_that_are_too_short(small: Path, opener: Callable[..., OnnxClassifierModel]) -> None:
    weight = onnx.numpy_helper.from_array(np.ones(1000, np.float32), "w")
    nodes = [*DIVIDED[:1], node("ReduceMax", "w", "m", keepdims=0), node("Mul", "f m", "logits")]
    onnxmodels.beside(graph(small / "model.onnx", nodes, constants=[weight]))
    (small / "model.onnx_data").write_bytes(b"\0" * 100)
    with pytest.raises(LoadFailed, match=r"External initializer: w .*out of bounds"):
        opener(small, "sequence")


def test_another_number_of_labels_than_the_graph_gives(small: Path, opener: Callable[..., OnnxClassifierModel]) -> None:
    tinymodels.write(small, {"config.json": {"id2label": {"0": "a"}, "max_position_embeddings": 16}})
    graph(small / "model.onnx", [FLOATS])
    with pytest.raises(LoadFailed, match="names 1 labels, but the graph gives 6"):
        opener(small, "sequence")


def test_a_tokenizer_is_needed(small: Path, opener: Callable[..., OnnxClassifierModel]) -> None:
    (small / "tokenizer.json").unlink()
    graph(small / "model.onnx", [FLOATS])
    with pytest.raises(LoadFailed, match=r"tokenizer\.json is missing"):
        opener(small, "sequence")


async def test_numbers_that_are_not_finite_fail_their_request_alone(
    small: Path, opener: Callable[..., OnnxClassifierModel]
) -> None:
    """The sum of ids divided by itself: an input of zeros has none."""
    total = onnx.numpy_helper.from_array(np.array([1]), "axis")
    nodes = [*DIVIDED[:1], node("ReduceSum", "f axis", "t", keepdims=1), node("Div", "f t", "logits")]
    graph(small / "model.onnx", nodes, constants=[total])
    model = opener(small, "sequence")
    good, bad = Item(ids=np.array([0, 7, 2], np.int32)), Item(ids=np.array([0, 0, 0], np.int32))
    with pytest.raises(ColdframeError, match="not finite"):
        await model.logits([bad])
    (found,) = await model.logits([good])
    np.testing.assert_allclose(found, [0, 7 / 9, 2 / 9], rtol=1e-6)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("std::bad_alloc"), RuntimeError("Failed to allocate memory for requested buffer")],
)
def test_running_out_of_memory_has_a_name(
    small: Path, opener: Callable[..., OnnxClassifierModel], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    graph(small / "model.onnx", [FLOATS])

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(native_library.onnxruntime, "InferenceSession", fail)
    with pytest.raises(OutOfMemory):
        opener(small, "sequence")


async def test_a_batch_that_is_too_large_for_the_memory_is_computed_in_parts(
    tiny: Callable[..., Path], opener: Callable[..., OnnxClassifierModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opener(tiny("bert", "token"), "token")
    given_ = await items(model, TEXTS)
    expected = await model.logits(given_)
    real, sizes = model._encoder.forward, []

    def forward(batch: Any, output: str) -> Any:
        sizes.append(len(batch))
        if len(batch) > 1:
            raise RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory")
        return real(batch, output)

    monkeypatch.setattr(model._encoder, "forward", forward)
    for found, wanted in zip(await model.logits(given_), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert max(sizes) > 1


def test_weights_in_a_file_beside_it_and_behind_links_as_a_cache_has_them(
    tmp_path: Path, tiny: Callable[..., Path], opener: Callable[..., OnnxClassifierModel]
) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    source = tiny("bert", "token")
    onnx.save(onnx.load(source / "model.onnx"), blobs / "model.onnx", save_as_external_data=True,
              location="model.onnx_data", size_threshold=0)  # fmt: skip
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (blobs / name).write_bytes((source / name).read_bytes())
    for number, file in enumerate(sorted(blobs.iterdir())):
        file.rename(blobs / f"{number}")
        (snapshot / file.name).symlink_to(f"../blobs/{number}")
    assert opener(snapshot / "model.onnx", "token").labels == ("O", "B-X", "I-X")


def test_the_model_that_transformers_reads_is_the_one_exported(tiny: Callable[..., Path]) -> None:
    config = transformers.AutoConfig.from_pretrained(tiny("bert", "token"))
    assert config.id2label == {0: "O", 1: "B-X", 2: "I-X"}
    assert given(tiny("bert", "token")).engine == "onnx"


@pytest.mark.parametrize("head", ["sequence", "token"])
async def test_a_token_that_the_graph_has_no_row_for_is_refused(
    opener: Callable[..., OnnxClassifierModel], tmp_path: Path, head: Any
) -> None:
    """The graph has 40 rows; the batch goes on without the one that asks for another."""
    tinymodels.headed(tmp_path, "bert", head, ["O", "B-X"])
    onnxmodels.export(tmp_path, head)
    words = tinymodels.words_tokenizer()
    words.add_tokens([f"word{at}" for at in range(30)])
    words.save(str(tmp_path / "tokenizer.json"))
    model = opener(tmp_path, head)
    assert len(await model.logits(await items(model, ["river", "river word23"]))) == 2
    with pytest.raises(InvalidRequest, match=r"that the model has no embedding for: .*idx=40 must be"):
        await model.logits(await items(model, ["river word24"]))


def test_a_tokenizer_of_another_model_is_refused(opener: Callable[..., OnnxClassifierModel], tmp_path: Path) -> None:
    tinymodels.headed(tmp_path, "bert", "sequence", ["O", "B-X"], vocab_size=15)
    onnxmodels.export(tmp_path, "sequence")
    with pytest.raises(LoadFailed, match=r"words up to the id 15, but model\.onnx has no row"):
        opener(tmp_path, "sequence")
