"""Decisions on ONNX Runtime: a file whose output is one row of logits for each text."""

from __future__ import annotations

from functions.decide.classifier import ClassifierDecide
from functions.engines.onnx.classifier import OnnxClassifierModel


class OnnxDecide(ClassifierDecide):
    """See `functions.decide.classifier`."""

    engine = OnnxClassifierModel
