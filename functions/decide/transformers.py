"""Decisions on torch: any `AutoModelForSequenceClassification` of a Hugging Face folder."""

from __future__ import annotations

from functions.decide.classifying import ClassifierDecide
from functions.engines.transformers.headed import TransformersHeaded


class TransformersDecide(ClassifierDecide):
    """See `functions.decide.classifying`."""

    engine = TransformersHeaded
