"""The classify function: labels for texts with their probabilities, from classifiers and NLI models."""

from __future__ import annotations

from functions.classify.operations import CLASSIFY, MODERATE
from functions.classify.options import ClassifyOptions
from host.function import Function
from host.hooks import hookimpl


@hookimpl
def coldframe_functions() -> list[Function]:
    """Register the function. Workers import this page too, so what only HTTP needs is imported here."""
    from functions.classify.routes import classify, create_moderation

    return [
        Function(
            name="classify",
            summary="Labels for texts: sentiment, topics, zero-shot, moderation",
            operations=(CLASSIFY, MODERATE),
            instances={
                "transformers": "functions.classify.transformers:TransformersClassifier",
                "onnx": "functions.classify.onnx:OnnxClassifier",
                "llama": "functions.classify.llama:LlamaClassifier",
            },
            tasks=("text-classification", "sentiment-analysis", "zero-shot-classification"),
            options=ClassifyOptions,
            routes=(classify, create_moderation),
            cli="functions.classify.cli:ClassifyCli",
        )
    ]
