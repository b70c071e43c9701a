"""The decide function: questions about an input, answered with probabilities, as OpenAI's `/v1/decisions`."""

from __future__ import annotations

from functions.decide.operations import DECIDE
from functions.decide.options import DecideOptions
from host.function import Function
from host.hooks import hookimpl


@hookimpl
def coldframe_functions() -> list[Function]:
    """Register the function. Workers import this page too, so what only HTTP needs is imported here."""
    from functions.decide.routes import create_decision

    return [
        Function(
            name="decide",
            summary="Answers to questions of yes or no, choice and score, as probabilities",
            operations=(DECIDE,),
            instances={
                "llama": "functions.decide.llama:LlamaDecide",
                "transformers": "functions.decide.transformers:TransformersDecide",
                "onnx": "functions.decide.onnx:OnnxDecide",
            },
            options=DecideOptions,
            routes=(create_decision,),
            cli="functions.decide.cli:DecideCli",
        )
    ]
