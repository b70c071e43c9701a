"""ONNX files for tests: exports of tiny random models, and graphs of a few operators that go wrong in known ways."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import onnx
import torch
import transformers
from onnx import TensorProto, helper

from functions.engines.onnx.options import OnnxOptions
from host.function import Load
from host.manifest import Manifest

Output = Literal["logits", "last_hidden_state"]
AUTO = {
    "sequence": (transformers.AutoModelForSequenceClassification, "logits"),
    "token": (transformers.AutoModelForTokenClassification, "logits"),
    "none": (transformers.AutoModel, "last_hidden_state"),
}
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def given(path: Path, options: dict[str, Any] | None = None, *, attempt: int = 0, **manifest: Any) -> Load:
    return Load(
        manifest=Manifest(task="ner", model="x", name="m", **manifest),
        path=str(path),
        engine="onnx",
        options=msgspec.Raw(msgspec.msgpack.encode(OnnxOptions(**(options or {})))),
        threads=2,
        attempt=attempt,
    )


class _Flat(torch.nn.Module):
    """A model with inputs in a row and one output, as the exporter wants it."""

    def __init__(self, model: Any, names: Sequence[str], output: str) -> None:
        super().__init__()
        self.model, self.names, self.output = model, names, output

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(**dict(zip(self.names, given, strict=True))), self.output)


def export(
    folder: Path,
    head: Literal["sequence", "token", "none"],
    *,
    file: str = "model.onnx",
    typed: bool = True,
    keep: bool = False,
    to: Path | None = None,
) -> Path:
    """Save the folder's model as ONNX in it (or in `to`); `keep` leaves the safetensors there too."""
    auto, output = AUTO[head]
    model = auto.from_pretrained(folder, attn_implementation="eager").eval()
    names = INPUTS if typed else INPUTS[:2]
    ids = torch.ones((2, 7), dtype=torch.long)
    given = tuple(ids * 0 if name == "token_type_ids" else ids for name in names)
    place = (to or folder) / file
    place.parent.mkdir(parents=True, exist_ok=True)
    axes = {0: "batch_size", 1: "sequence_length"}
    outputs = axes if head != "sequence" else {0: "batch_size"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Flat(model, names, output),
            given,
            str(place),
            input_names=list(names),
            output_names=[output],
            dynamic_axes={**dict.fromkeys(names, axes), output: outputs},
            opset_version=17,
            dynamo=False,
        )
    if not keep and to is None:
        (folder / "model.safetensors").unlink()
    return folder


def beside(file: Path, location: str = "model.onnx_data") -> Path:
    """Move the weights out of a graph into a file beside it."""
    model = onnx.load(file)
    file.unlink()
    onnx.save(model, file, save_as_external_data=True, location=location, size_threshold=0)
    return file


def graph(
    file: Path,
    nodes: Sequence[onnx.NodeProto],
    *,
    inputs: dict[str, Sequence[Any]] | None = None,
    output: Sequence[Any] = ("batch", "labels"),
    kind: int = TensorProto.INT64,
    constants: Sequence[onnx.TensorProto] = (),
    name: str = "logits",
) -> Path:
    """Save a graph whose nodes make the output `name` of inputs given as name -> shape."""
    taken = inputs or dict.fromkeys(INPUTS[:2], ("batch", "tokens"))
    made = helper.make_graph(
        list(nodes),
        "tiny",
        [helper.make_tensor_value_info(key, kind, list(shape)) for key, shape in taken.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(output))],
        list(constants),
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("made.up", 1)]
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=8), file)
    return file


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


FLOATS = node("Cast", "input_ids", "logits", to=TensorProto.FLOAT)
"""Ids as they are: (items, tokens), which a head on whole inputs takes for as many labels."""
