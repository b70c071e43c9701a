"""Classifiers on torch: any `AutoModelForSequenceClassification` of a Hugging Face folder."""

from __future__ import annotations

from functions.classify.instance import ClassifyInstance
from functions.engines.transformers.classifier import TransformersClassifierModel


class TransformersClassifier(ClassifyInstance):
    """See `functions.classify.instance`."""

    engine = TransformersClassifierModel
