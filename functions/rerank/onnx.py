"""Rerankers on ONNX Runtime: cross-encoders whose graph gives one row of logits for each pair."""

from __future__ import annotations

from typing import Self

import msgspec

from functions.engines.onnx.classifier import OnnxClassifierModel
from functions.engines.onnx.files import OnnxFiles
from functions.rerank.factory import scorer
from functions.rerank.instance import RerankInstance, function_options
from host.errors import LoadFailed
from host.function import Load, Plan, Progress


class OnnxRerank(RerankInstance):
    """A cross-encoder of a folder with ONNX files."""

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the sizes of the others; raises `LoadFailed`."""
        method = function_options(load).method
        if method not in ("auto", "cross_encoder"):
            raise LoadFailed(
                f"options.method: {method} is not served by the onnx engine; it runs cross_encoder",
                param="options.method",
            )
        plan = OnnxClassifierModel.plan(load)
        return msgspec.structs.replace(plan, notes=(*plan.notes, "method: cross_encoder (what this engine runs)"))

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer and graph, and test them; raises `LoadFailed` and `OutOfMemory`."""
        model = OnnxClassifierModel.load(load, plan, progress, "sequence")
        folder = OnnxFiles.at(load.path, load.manifest.quantization).folder
        return cls.checked(load, scorer(model, model.tokenizer, folder, function_options(load)))
