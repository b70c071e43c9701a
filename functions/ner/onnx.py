"""Entities on ONNX Runtime."""

from __future__ import annotations

from functions.engines.onnx.classifier import OnnxClassifierModel
from functions.ner.instance import NerInstance


class OnnxNer(NerInstance):
    """A folder with an ONNX file whose head is on tokens."""

    engine = OnnxClassifierModel
