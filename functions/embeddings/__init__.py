"""The embeddings function: texts or token ids in, one vector for each out, as OpenAI's `/v1/embeddings`."""

from __future__ import annotations

from functions.embeddings.api import EMBED, EmbeddingsRequest, Vectors
from functions.embeddings.routes import create_embeddings
from host.function import Function
from host.hooks import hookimpl

FUNCTION = Function(
    name="embeddings",
    summary="Vectors for texts: search, clustering, retrieval",
    operations=(EMBED,),
    instances={"transformers": "functions.embeddings.transformers:TransformersEmbeddings"},
    tasks=("feature-extraction", "sentence-similarity"),
    routes=(create_embeddings,),
    cli="functions.embeddings.shell:EmbeddingsShell",
)


@hookimpl
def coldframe_functions() -> list[Function]:
    """Register the function."""
    return [FUNCTION]


__all__ = ("EMBED", "FUNCTION", "EmbeddingsRequest", "Vectors", "coldframe_functions")
