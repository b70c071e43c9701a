"""Which files make a Transformers folder, in listings as real repositories have them."""

from __future__ import annotations

import pytest

from functions.engines.checkpoint import file_format as checkpoint
from functions.engines.checkpoint.file_format import CHECKPOINT
from functions.engines.llama.file_format import GGUF
from functions.engines.onnx.file_format import ONNX
from host.errors import ManifestError, ModelFileNotFound
from host.file_format import Choice, FileFormat, FileRequest, SingleFile
from host.sources import choice

FORMATS = (CHECKPOINT, GGUF, ONNX)


def choose(names: list[str], request: FileRequest, formats: tuple[FileFormat, ...] = FORMATS) -> Choice:
    return choice.choose(names, request, formats)


BASE = ["config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]
MINILM = [
    *BASE,
    *(".gitattributes", "README.md", "train_script.py", "vocab.txt", "modules.json", "sentence_bert_config.json"),
    *("1_Pooling/config.json", "model.safetensors", "pytorch_model.bin", "rust_model.ot", "tf_model.h5"),
    *("onnx/model.onnx", "onnx/model_O1.onnx", "openvino/openvino_model.bin", "openvino/openvino_model.xml"),
]
LLAMA = [
    *BASE,
    *("LICENSE.txt", "generation_config.json", "chat_template.jinja", "model.safetensors.index.json"),
    *(f"model-{number:05}-of-00004.safetensors" for number in range(1, 5)),
    *("original/consolidated.00.pth", "original/params.json", "original/tokenizer.model"),
]
MISTRAL = [
    *BASE,
    *("consolidated.safetensors", "params.json", "tokenizer.model.v3", "model.safetensors.index.json"),
    *(f"model-{number:05}-of-00003.safetensors" for number in range(1, 4)),
]
DENSE = [*BASE, "model.safetensors", "2_Dense/config.json", "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin"]
VARIANTS = [
    *BASE,
    "model.safetensors",
    "model.fp16.safetensors",
    "flax_model.msgpack",
    "checkpoint-500/model.safetensors",
]
ADAPTER = ["adapter_config.json", "adapter_model.safetensors", "training_args.bin"]
OLD = [*BASE, "pytorch_model.bin"]


@pytest.mark.parametrize(
    ("names", "weights", "not_there"),
    [
        (MINILM, ["model.safetensors"], "onnx|openvino|pytorch|rust|tf_|README|gitattributes"),
        (LLAMA, [f"model-{number:05}-of-00004.safetensors" for number in range(1, 5)], "original"),
        (MISTRAL, [f"model-{number:05}-of-00003.safetensors" for number in range(1, 4)], "consolidated"),
        (DENSE, ["2_Dense/model.safetensors", "model.safetensors"], "pytorch"),
        (VARIANTS, ["model.safetensors"], "fp16|flax|checkpoint"),
        (ADAPTER, ["adapter_model.safetensors"], "training"),
    ],
)
def test_the_right_files(names: list[str], weights: list[str], not_there: str) -> None:
    files = checkpoint.choose(names, "org/repo")
    assert [file for file in files if file.endswith(".safetensors")] == weights
    assert not [file for file in files for word in not_there.split("|") if word in file]
    assert {name for name in BASE if name in names} <= set(files)


def test_layers_beside_the_weights_come_along() -> None:
    names = ["config.json", "model.safetensors", "sparse_linear.safetensors", "colbert_linear.safetensors"]
    others = ["adapter.safetensors", "sparse_linear.pt", "model.fp16.safetensors"]
    assert set(checkpoint.choose([*names, *others], "r")) == set(names)
    assert "artifact.metadata" in checkpoint.choose(["config.json", "model.safetensors", "artifact.metadata"], "r")


def test_folders_of_modules_come_along() -> None:
    assert "1_Pooling/config.json" in checkpoint.choose(MINILM, "r")
    assert "chat_template.jinja" in checkpoint.choose(LLAMA, "r")


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (OLD, "only weights in .bin"),
        ([*BASE, "a.pt", "b.ckpt"], "only weights in .ckpt, .pt"),
        (BASE, "neither"),
        ([], "neither"),
        (["onnx/model.safetensors"], "neither"),
        ([name for name in LLAMA if "00002-of" not in name], "model-00002-of-00004.safetensors missing"),
    ],
)
def test_what_is_missing_is_told(names: list[str], told: str) -> None:
    with pytest.raises(ModelFileNotFound, match=told):
        checkpoint.choose(names, "org/repo")


MIXED = [*BASE, "model.safetensors", "m-Q4_K_M.gguf", "m-Q8_0.gguf"]


@pytest.mark.parametrize(
    ("wish", "target"),
    [
        (FileRequest(where="r"), ""),
        (FileRequest(where="r", quantization="int8"), ""),
        (FileRequest(where="r", quantization="BF16"), ""),
        (FileRequest(where="r", quantization="Q8_0"), "m-Q8_0.gguf"),
        (FileRequest(where="r", label="Q8_0"), "m-Q8_0.gguf"),
        (FileRequest(where="r", file="m-Q8_0.gguf"), "m-Q8_0.gguf"),
        (FileRequest(where="r", file="config.json"), "config.json"),
    ],
)
def test_a_repository_with_both(wish: FileRequest, target: str) -> None:
    assert choose(MIXED, wish).target == target


@pytest.mark.parametrize(("quantization", "target"), [(None, "m-Q4_K_M.gguf"), ("q8_0", "m-Q8_0.gguf")])
def test_a_repository_with_both_for_an_engine_that_takes_one(quantization: str | None, target: str) -> None:
    assert choose(MIXED, FileRequest(where="r", quantization=quantization), (GGUF,)).target == target
    assert choose(MIXED, FileRequest(where="r", quantization=quantization), (CHECKPOINT,)).target == ""


@pytest.mark.parametrize(
    ("names", "wish", "formats", "error", "message"),
    [
        (MIXED, FileRequest(where="r", file="nothing.gguf"), FORMATS, ModelFileNotFound, "has no nothing.gguf"),
        (MIXED, FileRequest(where="r", file="m-Q8_0.gguf", quantization="Q4_K_M"), FORMATS, ManifestError, "is Q8_0"),
        (BASE, FileRequest(where="r"), (GGUF,), ModelFileNotFound, "no GGUF"),
        (BASE, FileRequest(where="r"), FORMATS, ModelFileNotFound, "neither .safetensors nor .gguf"),
        (MIXED[:5], FileRequest(where="r", label="Q8_0"), FORMATS, ModelFileNotFound, "no GGUF"),
        (MIXED, FileRequest(where="r"), (ONNX,), ModelFileNotFound, "no .onnx file"),
        (["a.onnx", "b.onnx"], FileRequest(where="r"), (ONNX,), ModelFileNotFound, "several ONNX files"),
        (MIXED, FileRequest(where="r"), (), ModelFileNotFound, "no engine is installed"),
    ],
)
def test_contradictions(
    names: list[str], wish: FileRequest, formats: tuple[FileFormat, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        choose(names, wish, formats)


def test_an_engine_with_an_ending_of_its_own() -> None:
    names = ["sub/model.own", ".hidden/x.json", "config.json", "model.safetensors"]
    choice = choose(names, FileRequest(where="r"), (SingleFile((".own",)),))
    assert choice == Choice(files=("config.json", "sub/model.own"), target="sub/model.own")
    for wrong, what in ((names[1:], "it has none"), ([*names, "b.own"], "several: name one of b.own, sub/model.own")):
        with pytest.raises(ModelFileNotFound, match=what):
            choose(wrong, FileRequest(where="r"), (SingleFile((".own",)),))


def test_a_folder_inside() -> None:
    names = [f"v2/{name}" for name in MINILM] + MINILM
    choice = choose(names, FileRequest(where="r", file="v2"))
    assert choice.target == "v2"
    assert all(file.startswith("v2/") for file in choice.files)
    assert "v2/1_Pooling/config.json" in choice.files
