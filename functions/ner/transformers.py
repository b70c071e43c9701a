"""Entities on torch."""

from __future__ import annotations

from functions.engines.transformers.classifier import TransformersClassifierModel
from functions.ner.instance import NerInstance


class TransformersNer(NerInstance):
    """A folder of safetensors with a head on tokens."""

    engine = TransformersClassifierModel
