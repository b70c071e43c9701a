"""Classifiers on ONNX Runtime: a file whose output is one row of logits for each text."""

from __future__ import annotations

from functions.classify.instance import ClassifyInstance
from functions.engines.onnx.classifier import OnnxClassifierModel


class OnnxClassifier(ClassifyInstance):
    """See `functions.classify.instance`."""

    engine = OnnxClassifierModel
