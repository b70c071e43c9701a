"""The ner function: texts in, the entities in them out, with their places in the text; redacted texts on request."""

from __future__ import annotations

from functions.ner.operations import NER
from functions.ner.options import NerOptions
from host.function import Function
from host.hooks import hookimpl


@hookimpl
def coldframe_functions() -> list[Function]:
    """Register the function. Workers import this page too, so what only HTTP needs is imported here."""
    from functions.ner.routes import find_entities

    return [
        Function(
            name="ner",
            summary="Entities in texts (names, places, personal data), with their places; redaction",
            operations=(NER,),
            instances={
                "transformers": "functions.ner.transformers:TransformersNer",
                "onnx": "functions.ner.onnx:OnnxNer",
            },
            tasks=("token-classification",),
            options=NerOptions,
            routes=(find_entities,),
            cli="functions.ner.cli:NerCli",
        )
    ]
