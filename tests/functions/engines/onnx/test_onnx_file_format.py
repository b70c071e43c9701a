"""Which ONNX file of a listing is taken, what is brought here with it, and when ONNX is taken at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from functions.engines.checkpoint.file_format import CHECKPOINT
from functions.engines.llama.file_format import GGUF
from functions.engines.onnx import file_format as onnx
from functions.engines.onnx.file_format import ONNX
from host.errors import ManifestError, ModelFileNotFound
from host.file_format import Choice, FileFormat, FileRequest
from host.function import ModelRequest
from host.sources import choice
from host.sources.folder import open_model
from host.sources.hub import HubSource
from tests.hub import FakeHub

TEXTS = ["config.json", "tokenizer.json"]
ALL = [
    *TEXTS,
    *("onnx/model.onnx", "onnx/model.onnx_data", "onnx/model.onnx_data_1", "onnx/model_fp16.onnx"),
    *("onnx/model_fp16.onnx_data", "onnx/model_int8.onnx", "onnx/model_quantized.onnx", "onnx/model_q4.onnx"),
    *("onnx/model_q4f16.onnx", "onnx/model_qint8_avx512.onnx", "onnx/model_O4.onnx", "onnx/config.json"),
]
FORMATS = (CHECKPOINT, GGUF, ONNX)
ANY = FileRequest(where="r")


def choose(names: list[str], request: FileRequest, formats: tuple[FileFormat, ...] = FORMATS) -> Choice:
    return choice.choose(names, request, formats)


@pytest.mark.parametrize(
    ("quantization", "file"),
    [
        (None, "onnx/model.onnx"),
        ("fp32", "onnx/model.onnx"),
        ("FP16", "onnx/model_fp16.onnx"),
        ("float16", "onnx/model_fp16.onnx"),
        ("int8", "onnx/model_int8.onnx"),
        ("quantized", "onnx/model_quantized.onnx"),
        ("q8", "onnx/model_quantized.onnx"),
        ("int4", "onnx/model_q4.onnx"),
        ("q4", "onnx/model_q4.onnx"),
        ("q4f16", "onnx/model_q4f16.onnx"),
        ("qint8_avx512", "onnx/model_qint8_avx512.onnx"),
        ("o4", "onnx/model_O4.onnx"),
    ],
)
def test_a_quantization_chooses_exactly_one(quantization: str | None, file: str) -> None:
    assert onnx.choose(ALL, quantization, "r") == file


def test_int8_is_what_older_exports_call_quantized() -> None:
    assert onnx.choose(["model.onnx", "model_quantized.onnx"], "int8", "r") == "model_quantized.onnx"


def test_the_folder_itself_goes_before_its_subfolder() -> None:
    assert onnx.choose(["onnx/model.onnx", "model.onnx"], None, "r") == "model.onnx"
    assert onnx.choose(["onnx/model_q4.onnx", "model.onnx"], "q4", "r") == "onnx/model_q4.onnx"


@pytest.mark.parametrize("name", ["model_q4.onnx", "onnx/anything.onnx", "deep/inside/m.onnx"])
def test_the_only_file_is_taken(name: str) -> None:
    assert onnx.choose([*TEXTS, name], None, "r") == name


@pytest.mark.parametrize(
    ("names", "quantization", "param", "told"),
    [
        (["model_q4.onnx"], "int8", "quantization", r"no int8 among its ONNX files: model_q4.onnx \(int4\)"),
        (ALL, "q2", "quantization", r"model_quantized.onnx \(int8\)"),
        (ALL, "q2", "quantization", r"model_O4.onnx \(o4\)"),
        (["model_a.onnx", "model_b.onnx"], None, "model", "name one of model_a.onnx"),
        (["encoder.onnx", "decoder.onnx"], "fp32", "quantization", "decoder.onnx, encoder.onnx"),
        (TEXTS, None, "model", "no .onnx file"),
    ],
)
def test_what_there_is_is_listed(names: list[str], quantization: str | None, param: str, told: str) -> None:
    with pytest.raises(ModelFileNotFound, match=told) as caught:
        onnx.choose(names, quantization, "r")
    assert caught.value.param == param


def test_the_weights_beside_the_graph_come_along_and_no_other_graph() -> None:
    choice = choose(ALL, ANY, (ONNX,))
    assert choice.target == "onnx/model.onnx"
    assert set(choice.files) == {
        *TEXTS, "onnx/config.json", "onnx/model.onnx", "onnx/model.onnx_data", "onnx/model.onnx_data_1",
    }  # fmt: skip
    assert onnx.data("m.onnx", ["m.onnx.data", "m.onnx.database", "m.onnx_data", "xm.onnx_data"]) == [
        "m.onnx.data", "m.onnx_data",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wish", "target"),
    [
        (FileRequest(where="r"), "onnx/model.onnx"),
        (FileRequest(where="r", quantization="q4"), "onnx/model_q4.onnx"),
        (FileRequest(where="r", label="q4"), "onnx/model_q4.onnx"),
        (FileRequest(where="r", file="onnx/model_O4.onnx"), "onnx/model_O4.onnx"),
        (FileRequest(where="r", file="onnx", quantization="q4"), "onnx/model_q4.onnx"),
    ],
)
def test_a_repository_of_onnx_alone(wish: FileRequest, target: str) -> None:
    choice = choose(ALL, wish)
    assert choice.target == target
    assert {*TEXTS, target} <= set(choice.files)


@pytest.mark.parametrize(
    ("more", "wish", "formats", "target"),
    [
        (["model.safetensors"], ANY, FORMATS, ""),
        (["model.safetensors"], FileRequest(where="r", quantization="int8"), FORMATS, ""),
        (["model.safetensors"], ANY, (ONNX,), "onnx/model.onnx"),
        (["model.safetensors"], FileRequest(where="r", label="q4"), (ONNX,), "onnx/model_q4.onnx"),
        (["m-Q4_K_M.gguf"], ANY, FORMATS, "m-Q4_K_M.gguf"),
        (["m-Q4_K_M.gguf"], ANY, (ONNX,), "onnx/model.onnx"),
    ],
)
def test_beside_other_weights_onnx_is_taken_only_when_its_engine_asks(
    more: list[str], wish: FileRequest, formats: tuple[FileFormat, ...], target: str
) -> None:
    assert choose([*ALL, *more], wish, formats).target == target
    if target == "":
        assert not [file for file in choose([*ALL, *more], wish, formats).files if ".onnx" in file]


def test_a_file_that_is_named_has_the_quantization_that_is_asked_for() -> None:
    assert (
        choose(ALL, FileRequest(where="r", file="onnx/model_q4.onnx", quantization="int4")).target
        == "onnx/model_q4.onnx"
    )
    with pytest.raises(ManifestError, match="is int4, not int8: leave one out"):
        choose(ALL, FileRequest(where="r", file="onnx/model_q4.onnx", quantization="int8"))


@pytest.mark.parametrize(
    ("safetensors", "formats", "opened"),
    [(False, FORMATS, "onnx/model_q4.onnx"), (True, FORMATS, ""), (True, (ONNX,), "onnx/model_q4.onnx")],
)
def test_a_folder_on_disk(tmp_path: Path, safetensors: bool, formats: tuple[FileFormat, ...], opened: str) -> None:
    (tmp_path / "onnx").mkdir()
    for name in ("config.json", "onnx/model_q4.onnx", *(["model.safetensors"] if safetensors else [])):
        (tmp_path / name).write_text("{}")
    found = open_model(tmp_path, ModelRequest(model="./m", base=tmp_path, formats=formats))
    assert found == (tmp_path / opened if opened else tmp_path)


@pytest.mark.parametrize(
    ("formats", "quantization", "fetched"),
    [
        (FORMATS, None, {"config.json", "tokenizer.json", "model.safetensors"}),
        ((ONNX,), None, {"config.json", "tokenizer.json", "onnx/model.onnx", "onnx/model.onnx_data"}),
        ((ONNX,), "int8", {"config.json", "tokenizer.json", "onnx/model_quantized.onnx"}),
    ],
)
def test_from_the_hub_only_what_the_engine_needs_is_fetched(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    formats: tuple[FileFormat, ...],
    quantization: str | None,
    fetched: set[str],
) -> None:
    names = [*TEXTS, "model.safetensors", "onnx/model.onnx", "onnx/model.onnx_data", "onnx/model_quantized.onnx"]
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with FakeHub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.add("org/repo", {name: name.encode() for name in names})
        wanted = ModelRequest(model="org/repo", base=tmp_path, formats=formats, quantization=quantization)
        path = HubSource().resolve(wanted, lambda stage, done=0, total=0: None)
    root = path if path.is_dir() else path.parent.parent
    assert {file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()} == fetched
    assert path.is_dir() or path.relative_to(root).as_posix() in fetched
