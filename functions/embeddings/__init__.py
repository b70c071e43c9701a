"""The embeddings function: texts or token ids in, one vector for each out, as OpenAI's `/v1/embeddings`."""

from __future__ import annotations

from functions.embeddings.operations import EMBED
from functions.embeddings.options import EmbeddingsOptions
from host.function import Function
from host.hooks import hookimpl


@hookimpl
def coldframe_functions() -> list[Function]:
    """Register the function. Workers import this page too, so what only HTTP needs is imported here."""
    from functions.embeddings.routes import create_embeddings

    return [
        Function(
            name="embeddings",
            summary="Vectors for texts: search, clustering, retrieval",
            operations=(EMBED,),
            instances={
                "transformers": "functions.embeddings.transformers:TransformersEmbeddings",
                "llama": "functions.embeddings.llama:LlamaEmbeddings",
                "onnx": "functions.embeddings.onnx:OnnxEmbeddings",
            },
            tasks=("feature-extraction", "sentence-similarity"),
            options=EmbeddingsOptions,
            routes=(create_embeddings,),
            cli="functions.embeddings.cli:EmbeddingsCli",
        )
    ]
