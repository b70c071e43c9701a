"""Decisions on torch: any `AutoModelForSequenceClassification` of a Hugging Face folder."""

from __future__ import annotations

from functions.decide.classifier import ClassifierDecide
from functions.engines.transformers.classifier import TransformersClassifierModel


class TransformersDecide(ClassifierDecide):
    """See `functions.decide.classifier`."""

    engine = TransformersClassifierModel
