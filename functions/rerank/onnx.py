"""Rerankers on ONNX Runtime: cross-encoders whose graph returns one row of logits for each pair."""

from __future__ import annotations

from functions.engines.onnx.classifier import OnnxClassifierModel
from functions.engines.onnx.files import OnnxFiles
from functions.rerank.instance import RerankInstance, with_method
from functions.rerank.options import RerankOptions
from functions.rerank.scorer import Scorer
from functions.rerank.scorer_factory import create_scorer
from host.errors import LoadFailed
from host.function import Load, Plan, Progress


class OnnxRerank(RerankInstance):
    """A cross-encoder of a folder with ONNX files."""

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the sizes of the others; raises `LoadFailed`."""
        method = load.task_options(RerankOptions).method
        if method not in ("auto", "cross_encoder"):
            raise LoadFailed(
                f"options.method: {method} is not served by the onnx engine; it runs cross_encoder",
                param="options.method",
            )
        return with_method(OnnxClassifierModel.plan(load), "cross_encoder", "what this engine runs")

    @classmethod
    def load_scorer(cls, load: Load, plan: Plan, progress: Progress) -> Scorer:
        """Load tokenizer and graph; raises `LoadFailed` and `OutOfMemory`."""
        model = OnnxClassifierModel.load(load, plan, progress, "sequence")
        folder = OnnxFiles.at(load.path, load.manifest.quantization).folder
        return create_scorer(model, model.tokenizer, folder, load.task_options(RerankOptions))
