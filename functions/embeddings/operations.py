"""The operation of the embeddings function."""

from __future__ import annotations

from functions.embeddings.api import EmbeddingsRequest, Vectors
from functions.embeddings.inputs import check
from host.function import Operation

EMBED: Operation[EmbeddingsRequest, Vectors] = Operation(
    name="embed", request=EmbeddingsRequest, answer=Vectors, check=check, path="/v1/embeddings"
)
