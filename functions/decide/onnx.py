"""Decisions on ONNX Runtime: a file whose output is one row of logits for each text."""

from __future__ import annotations

from functions.decide.classifying import ClassifierDecide
from functions.engines.onnx.headed import OnnxHeaded


class OnnxDecide(ClassifierDecide):
    """See `functions.decide.classifying`."""

    engine = OnnxHeaded
