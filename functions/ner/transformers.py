"""Entities on torch."""

from __future__ import annotations

from typing import ClassVar

from functions.engines.transformers.classifier import TransformersClassifierModel
from functions.ner.instance import NerInstance


class TransformersNer(NerInstance):
    """A folder of safetensors with a head on tokens."""

    model: ClassVar[type[TransformersClassifierModel]] = TransformersClassifierModel
