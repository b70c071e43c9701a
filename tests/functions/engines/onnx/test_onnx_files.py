"""The files of an ONNX model: found, counted, and refused when weights are missing or lead out of the folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxmodels
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from functions.engines.onnx.files import OnnxFiles
from host.errors import LoadFailed


def weight(name: str, count: int = 64) -> TensorProto:
    return numpy_helper.from_array(np.arange(count, dtype=np.float32), name)


def outside(name: str, place: str) -> TensorProto:
    """A tensor whose bytes are said to lie somewhere else."""
    made = weight(name)
    external_data_helper.set_external_data(made, location=place, offset=0, length=256)
    made.ClearField("raw_data")
    made.data_location = TensorProto.EXTERNAL
    return made


def test_the_real_model_is_found_below_its_folder(rampart: Path) -> None:
    files = OnnxFiles.at(rampart, None)
    assert files.file == rampart / "onnx" / "model_q4.onnx"
    assert files.folder.path == rampart
    assert files.sizes() == (files.file.stat().st_size, 0)
    assert OnnxFiles.at(files.file, None).folder.path == rampart


def test_small_files_beside_the_graph_go_before_those_above(tmp_path: Path) -> None:
    place = onnxmodels.graph(tmp_path / "onnx" / "model.onnx", [onnxmodels.FLOATS])
    assert OnnxFiles(place).folder.path == tmp_path
    (place.parent / "config.json").write_text("{}")
    assert OnnxFiles(place).folder.path == place.parent


def test_a_folder_with_several_is_chosen_from_by_quantization(tmp_path: Path) -> None:
    for name in ("model.onnx", "onnx/model_q4.onnx"):
        onnxmodels.graph(tmp_path / name, [onnxmodels.FLOATS])
    assert OnnxFiles.at(tmp_path, None).file.name == "model.onnx"
    assert OnnxFiles.at(tmp_path, "int4").file.name == "model_q4.onnx"
    with pytest.raises(LoadFailed, match="no int8 among its ONNX files") as caught:
        OnnxFiles.at(tmp_path, "int8")
    assert str(tmp_path) not in caught.value.message


def test_weights_beside_the_graph_are_counted(tmp_path: Path) -> None:
    place = onnxmodels.graph(tmp_path / "model.onnx", [onnxmodels.FLOATS], constants=[weight("w", 1000)])
    alone, _ = OnnxFiles(place).sizes()
    onnxmodels.beside(place)
    assert place.stat().st_size < 4000
    graph, beside = OnnxFiles(place).sizes()
    assert (graph, beside) == (place.stat().st_size, (tmp_path / "model.onnx_data").stat().st_size)
    assert abs(graph + beside - alone) < 1000


def test_missing_weights_are_named(tmp_path: Path) -> None:
    place = onnxmodels.beside(
        onnxmodels.graph(tmp_path / "model.onnx", [onnxmodels.FLOATS], constants=[weight("w", 1000)])
    )
    (tmp_path / "model.onnx_data").unlink()
    with pytest.raises(LoadFailed, match=r"^model\.onnx_data is missing: model\.onnx has its weights in it$"):
        OnnxFiles(place).sizes()


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/passwd", "a/../../secret", "..\\secret", "C:\\secret", "C:/secret", ""]
)
def test_weights_may_not_lead_out_of_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 256)
    file = tmp_path / "model" / "model.onnx"
    onnxmodels.graph(file, [onnxmodels.FLOATS], constants=[outside("w", location)])
    with pytest.raises(LoadFailed, match="outside of the model's folder"):
        OnnxFiles(file).sizes()


def branch(tensor: TensorProto) -> onnx.GraphProto:
    constant = helper.make_node("Constant", [], ["made"], value=tensor)
    return helper.make_graph([constant], "inner", [], [helper.make_tensor_value_info("made", TensorProto.FLOAT, [64])])


@pytest.mark.parametrize("hidden", ["attribute", "branch", "function"])
def test_weights_are_found_wherever_a_graph_may_have_them(tmp_path: Path, hidden: str) -> None:
    there = outside("w", "../secret")
    file = tmp_path / "model.onnx"
    if hidden == "attribute":
        onnxmodels.graph(file, [helper.make_node("Constant", [], ["logits"], value=there)])
    elif hidden == "branch":
        inner = branch(there)
        onnxmodels.graph(file, [helper.make_node("If", ["x"], ["logits"], then_branch=inner, else_branch=inner)])
    else:
        onnxmodels.graph(file, [onnxmodels.FLOATS])
        model = onnx.load(file)
        body = [helper.make_node("Constant", [], ["y"], value=there)]
        model.functions.append(helper.make_function("made.up", "F", [], ["y"], body, [helper.make_opsetid("", 17)]))
        onnx.save(model, file)
    with pytest.raises(LoadFailed, match=r"'\.\./secret', which is outside"):
        OnnxFiles(file).sizes()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\x00" * 64, b"version https://git-lfs.github.com/spec/v1\n", b"\xff" * 32]
)
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(content)
    with pytest.raises(LoadFailed, match=r"model\.onnx is not an ONNX model"):
        OnnxFiles(file).sizes()


@pytest.mark.parametrize("part", [0.1, 0.5, 0.999])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, rampart: Path, part: float) -> None:
    whole = (rampart / "onnx" / "model_q4.onnx").read_bytes()
    file = tmp_path / "model.onnx"
    file.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(LoadFailed, match="its download is incomplete"):
        OnnxFiles(file).sizes()
