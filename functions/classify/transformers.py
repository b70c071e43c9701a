"""Classifiers on torch: any `AutoModelForSequenceClassification` of a Hugging Face folder."""

from __future__ import annotations

from functions.classify.instance import Classifier
from functions.engines.transformers.classifier import TransformersClassifierModel


class TransformersClassifier(Classifier):
    """See `functions.classify.instance`."""

    engine = TransformersClassifierModel
