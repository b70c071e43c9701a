"""The rerank function: scores how well documents answer a query."""

from __future__ import annotations

from functions.rerank.operations import RERANK
from functions.rerank.options import RerankOptions
from host.function import Function
from host.hooks import hookimpl


@hookimpl
def coldframe_functions() -> list[Function]:
    """Register the function. Workers import this page too, so what only HTTP needs is imported here."""
    from functions.rerank.routes import rerank

    return [
        Function(
            name="rerank",
            summary="Documents in the order of how well they answer a query",
            operations=(RERANK,),
            instances={
                "transformers": "functions.rerank.transformers:TransformersRerank",
                "onnx": "functions.rerank.onnx:OnnxRerank",
                "llama": "functions.rerank.llama:LlamaRerank",
            },
            tasks=("text-ranking", "reranking"),
            options=RerankOptions,
            routes=(rerank,),
            cli="functions.rerank.cli:RerankCli",
        )
    ]
