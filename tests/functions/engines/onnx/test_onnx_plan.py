"""What is known before a graph is read: its bytes, which hold in a process of its own, lengths, devices, options."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnxmodels
import pytest
from onnxmodels import given

from functions.engines.onnx import plan as planning
from functions.engines.onnx.classifier import OnnxClassifierModel
from functions.engines.onnx.files import OnnxFiles
from functions.engines.onnx.options import OnnxOptions
from host.errors import LoadFailed, ManifestError
from host.manifest.schema import docs


def test_bytes_are_those_of_the_files_and_of_a_batch(rampart: Path) -> None:
    found = OnnxClassifierModel.plan(given(rampart))
    size = (rampart / "onnx" / "model_q4.onnx").stat().st_size
    assert size <= found.detail["weights"] < 1.2 * size
    assert found.bytes["ram"] > size + found.detail["activations"]
    assert (found.device, found.context) == ("cpu", 512)
    assert found.detail["file"] == "model_q4.onnx"
    assert found.notes[0] == "model_q4.onnx on cpu, batches of up to 1024 tokens"


def test_weights_beside_a_graph_take_their_own_size(tmp_path: Path, rampart: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((rampart / name).read_bytes())
    (tmp_path / "model.onnx").write_bytes((rampart / "onnx" / "model_q4.onnx").read_bytes())
    inside = OnnxClassifierModel.plan(given(tmp_path)).detail["weights"]
    onnxmodels.beside(tmp_path / "model.onnx")
    beside = OnnxClassifierModel.plan(given(tmp_path)).detail["weights"]
    assert (tmp_path / "model.onnx_data").stat().st_size < beside < inside


def test_more_tokens_take_more(rampart: Path) -> None:
    sizes = [
        OnnxClassifierModel.plan(given(rampart, {"batch_tokens": tokens})).bytes["ram"]
        for tokens in (512, 2048, 16_384)
    ]
    assert sizes == sorted(set(sizes))


def test_a_second_attempt_takes_less_unless_the_manifest_says() -> None:
    assert planning.batch_tokens(OnnxOptions(), 1) < planning.batch_tokens(OnnxOptions(), 0)
    assert planning.batch_tokens(OnnxOptions(batch_tokens=4096), 1) == 4096


@pytest.mark.parametrize(("context", "longest"), [("auto", 512), (100, 100), (512, 512)])
def test_lengths_are_bounded_by_the_model_and_the_manifest(rampart: Path, context: int, longest: int) -> None:
    assert OnnxClassifierModel.plan(given(rampart, context=context)).context == longest


def test_a_context_beyond_the_model_is_refused(rampart: Path) -> None:
    with pytest.raises(ManifestError, match="context is 9999, but the model takes at most 512 tokens") as caught:
        OnnxClassifierModel.plan(given(rampart, context=9999))
    assert caught.value.key == "context"


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps"])
def test_devices_other_than_the_cpu_are_refused(rampart: Path, device: str) -> None:
    with pytest.raises(LoadFailed, match=f"device: {device} is not served") as caught:
        OnnxClassifierModel.plan(given(rampart, device=device))
    assert caught.value.param == "device"


def test_slots_are_noted_as_unused(rampart: Path) -> None:
    assert any("slots" in note for note in OnnxClassifierModel.plan(given(rampart, slots=4)).notes)


@pytest.mark.parametrize(("quantization", "there"), [("q4", True), ("int4", True), ("int8", False), ("fp32", False)])
def test_a_quantization_that_is_not_there_is_refused(rampart: Path, quantization: str, there: bool) -> None:
    if there:
        assert OnnxClassifierModel.plan(given(rampart, quantization=quantization)).detail["file"] == "model_q4.onnx"
        return
    with pytest.raises(LoadFailed, match=rf"no {quantization} among its ONNX files: onnx/model_q4.onnx \(int4\)"):
        OnnxClassifierModel.plan(given(rampart, quantization=quantization))


def test_a_folder_without_configuration_is_refused(tmp_path: Path) -> None:
    file = onnxmodels.graph(tmp_path / "model.onnx", [onnxmodels.FLOATS])
    assert OnnxFiles(file).sizes()[1] == 0
    with pytest.raises(LoadFailed, match=r"config\.json is missing"):
        OnnxClassifierModel.plan(given(tmp_path))


def test_every_option_is_documented() -> None:
    assert docs(OnnxOptions).keys() == {"batch_tokens", "optimization", "pooling"}


_MEASURED = """
import asyncio, json, sys
from pathlib import Path
import numpy as np
import functions.engines.onnx.preload
from functions.engines.batching.item import Item
from functions.engines.onnx.classifier import OnnxClassifierModel
from functions.engines.onnx.options import OnnxOptions
from host.function import Load
from host.manifest import Manifest
import msgspec

def memory(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1]) << 10

load = Load(manifest=Manifest(task="ner", model="x", name="m"), path={path!r}, engine="onnx", threads=2,
            options=msgspec.Raw(msgspec.msgpack.encode(OnnxOptions())))
before = memory("VmRSS")
plan = OnnxClassifierModel.plan(load)
model = OnnxClassifierModel.load(load, plan, lambda stage, done=0, total=0: None, "token")
async def run():
    for tokens in (512, 300, 17, 64, 512, 128):
        await model.logits([Item(ids=np.ones(tokens, np.int32))] * (2048 // tokens))
asyncio.run(run())
model.close()
heavy = [name for name in ("torch", "transformers", "onnx", "huggingface_hub") if name in sys.modules]
print(json.dumps([plan.bytes["ram"], memory("VmHWM") - before, heavy]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_plan_holds_in_a_process_that_imports_no_torch(rampart: Path) -> None:
    code = _MEASURED.replace("{path!r}", repr(str(rampart)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    planned, taken, heavy = json.loads(done.stdout)
    assert heavy == []
    assert taken <= planned <= 2 * taken
