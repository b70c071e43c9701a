"""Embeddings of ONNX graphs: those that Transformers gives for the same weights, whatever pools them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loads
import numpy as np
import onnx
import onnxmodels
import pytest
import tinymodels
from onnx import TensorProto, helper

from functions.embeddings.api import EmbeddingsRequest
from functions.embeddings.onnx import OnnxEmbeddings
from functions.embeddings.transformers import TransformersEmbeddings
from host.direct import open_function
from host.errors import InvalidRequest, LoadFailed
from host.manifest import Manifest

pytestmark = pytest.mark.anyio

SENTENCES = [
    "The cat sits outside.",
    "A feline is resting in the garden, watching birds that come and go as the afternoon turns slowly into evening.",
    "Interest rates rose by a quarter of a percent.",
    "naïve café, 東京 and 🙂",
    "no",
]
WORDS = ["river stone light number", "window", "garden paper winter music train bread letter", "stone"]


@pytest.fixture(scope="session")
def exported(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM's folder with the graph in fp32 and in 8 bits, and no safetensors."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    folder = tmp_path_factory.mktemp("minilm")
    shutil.copytree(minilm, folder, dirs_exist_ok=True)
    onnxmodels.export(folder, "none", file="onnx/model.onnx")
    quantize_dynamic(
        folder / "onnx" / "model.onnx",
        folder / "onnx" / "model_quantized.onnx",
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    return folder


@pytest.fixture(scope="module")
def reference(opener: Callable[..., TransformersEmbeddings], minilm: Path) -> TransformersEmbeddings:
    return opener(minilm, quantization="fp32")


@pytest.fixture
def open_onnx() -> Iterator[Callable[..., OnnxEmbeddings]]:
    opened: list[OnnxEmbeddings] = []

    def open_(path: Path, options: dict[str, Any] | None = None, **manifest: Any) -> OnnxEmbeddings:
        load = loads.given("embeddings", path, options, engine="onnx", **manifest)
        opened.append(OnnxEmbeddings.load(load, OnnxEmbeddings.plan(load), loads.ignore))
        return opened[-1]

    yield open_
    for instance in opened:
        instance.close()


async def vectors(instance: Any, texts: list[str], **more: Any) -> np.ndarray:
    found = await instance.answer(EmbeddingsRequest(model="m", input=texts, **more))
    return np.frombuffer(found.data, dtype="<f4").reshape(len(texts), found.dimension)


@pytest.mark.slow
async def test_vectors_of_minilm_are_those_of_transformers(
    exported: Path, open_onnx: Callable[..., OnnxEmbeddings], reference: TransformersEmbeddings
) -> None:
    model = open_onnx(exported)
    ours, theirs = await vectors(model, SENTENCES), await vectors(reference, SENTENCES)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    facts = model.info()
    assert facts.context == reference.info().context == 256
    assert facts.detail["dimension"] == 384
    assert facts.detail["pooling"] == ["mean"]
    assert facts.detail["file"] == "model.onnx"


@pytest.mark.slow
async def test_vectors_in_8_bits_point_the_same_way(
    exported: Path, open_onnx: Callable[..., OnnxEmbeddings], reference: TransformersEmbeddings
) -> None:
    model = open_onnx(exported, quantization="int8")
    ours, theirs = await vectors(model, SENTENCES), await vectors(reference, SENTENCES)
    cosines = (ours * theirs).sum(1)
    assert cosines.min() > 0.95
    assert cosines.max() < 0.99999, "it is not the graph in 8 bits that answers"
    assert model.info().detail["file"] == "model_quantized.onnx"


@pytest.mark.slow
async def test_tokens_are_counted_as_by_transformers_and_requests_are_merged(
    exported: Path, open_onnx: Callable[..., OnnxEmbeddings], reference: TransformersEmbeddings
) -> None:
    request = EmbeddingsRequest(model="m", input=SENTENCES)
    model = open_onnx(exported)
    found, expected = await model.answer(request), await reference.answer(request)
    assert found.usage == expected.usage
    with pytest.raises(InvalidRequest, match="were not trained"):
        await model.answer(EmbeddingsRequest(model="m", input="a", dimensions=100))
    with pytest.raises(InvalidRequest, match="too large"):
        await model.answer(EmbeddingsRequest(model="m", input="word " * 300))


FILES = {
    "mean": {},
    "cls": {"1_Pooling/config.json": {"pooling_mode_cls_token": True}},
    "two": {"1_Pooling/config.json": {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True}},
    "prompt": {
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True, "include_prompt": False},
        "config_sentence_transformers.json": {"prompts": {"query": "river stone"}, "default_prompt_name": "query"},
    },
}


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
@pytest.mark.parametrize("files", FILES)
async def test_folders_are_read_as_transformers_reads_them(
    tmp_path: Path, open_onnx: Callable[..., OnnxEmbeddings], kind: str, files: str
) -> None:
    folder = tinymodels.tiny(
        tmp_path, kind, {"modules.json": tinymodels.modules("Transformer", "Pooling"), **FILES[files]}
        if files != "mean" else None,
    )  # fmt: skip
    load = tinymodels.given(folder, quantization="fp32")
    torch = TransformersEmbeddings.load(load, TransformersEmbeddings.plan(load), loads.ignore)
    try:
        expected = await vectors(torch, WORDS)
    finally:
        torch.close()
    onnxmodels.export(folder, "none", typed=kind == "bert")
    np.testing.assert_allclose(await vectors(open_onnx(folder), WORDS), expected, atol=1e-4)


def pooled(folder: Path) -> Path:
    """Return the folder with a graph that pools by itself: the mean over all states, and no other output."""
    file = onnxmodels.export(tinymodels.tiny(folder), "none") / "model.onnx"
    model = onnx.load(file)
    model.graph.node.append(
        helper.make_node("ReduceMean", ["last_hidden_state"], ["sentence_embedding"], axes=[1], keepdims=0)
    )
    model.graph.output.append(helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["b", 32]))
    del model.graph.output[0]
    onnx.save(model, file)
    return folder


async def test_a_graph_that_pools_by_itself(tmp_path: Path, open_onnx: Callable[..., OnnxEmbeddings]) -> None:
    whole = onnxmodels.export(tinymodels.tiny(tmp_path / "whole"), "none")
    model = open_onnx(pooled(tmp_path / "pooled"))
    expected = await vectors(open_onnx(whole), WORDS[:1])
    np.testing.assert_allclose(await vectors(model, WORDS[:1]), expected, atol=1e-5)
    assert model.info().detail["pooling"] == ["the graph's sentence_embedding"]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"modules.json": tinymodels.modules("Transformer", "SpladePooling"), "1_SpladePooling/config.json": {}},
         "one vector"),
        ({"modules.json": [{"path": "sub", "type": "sentence_transformers.models.Transformer"},
                           {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}],
          "sub/config.json": {}, "1_Pooling/config.json": {"pooling_mode_cls_token": True}}, "encoder in sub"),
    ],
)  # fmt: skip
def test_models_of_other_kinds_are_refused(
    tmp_path: Path, open_onnx: Callable[..., OnnxEmbeddings], files: dict[str, Any], told: str
) -> None:
    folder = onnxmodels.export(tinymodels.tiny(tmp_path), "none")
    tinymodels.write(folder, files)
    with pytest.raises(LoadFailed, match=told):
        open_onnx(folder)


def test_a_graph_with_labels_embeds_nothing(tmp_path: Path, open_onnx: Callable[..., OnnxEmbeddings]) -> None:
    folder = tinymodels.headed(tmp_path, "bert", "sequence", ["a", "b"])
    onnxmodels.export(folder, "sequence")
    with pytest.raises(LoadFailed, match="no output of 3 dimensions such as last_hidden_state"):
        open_onnx(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "file"), [("", "model.onnx"), ("/onnx/model.onnx", "model.onnx"), ("/onnx/q.onnx", "q.onnx")]
)
async def test_a_folder_and_a_file_are_served_in_a_worker(tmp_path: Path, named: str, file: str) -> None:
    """Without safetensors the files choose the engine; a file is taken by its name."""
    folder = tinymodels.tiny(tmp_path / "m")
    onnxmodels.export(folder, "none", file="onnx/model.onnx")
    if named.endswith("q.onnx"):
        shutil.copy(folder / "onnx" / "model.onnx", folder / "onnx" / "q.onnx")
    manifest = Manifest(task="embeddings", model=f"{folder}{named}", name="m")
    async with open_function(manifest) as opened:
        found = await opened.call(EmbeddingsRequest(model="m", input=WORDS))
        assert len(found.data) == len(WORDS) * 32 * 4
        status = opened.status()
        assert status.engine == "onnx"
        assert status.plan is not None
        assert status.plan.detail["file"] == file
