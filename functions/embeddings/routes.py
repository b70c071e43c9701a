"""HTTP routes of the embeddings function: OpenAI's `/v1/embeddings`."""

from __future__ import annotations

from litestar import post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from functions.embeddings import output_format
from functions.embeddings.api import EmbeddingList, EmbeddingsRequest
from functions.embeddings.operations import EMBED
from functions.embeddings.response import render
from host.http import HostDependency
from host.http.response import JsonResponse


@post(
    ["/v1/embeddings", "/embeddings"],
    status_code=200,
    summary="Create embeddings",
    tags=["embeddings"],
    responses={200: ResponseSpec(EmbeddingList, generate_examples=False, description="In the order of the inputs")},
)
async def create_embeddings(data: JSONBody[EmbeddingsRequest], host: HostDependency) -> JsonResponse:
    """Return a vector for each input, in their order."""
    vectors = await host.call(data.model or "", EMBED, data)
    model = data.model or vectors.model
    base64, as_object = output_format.is_base64(data), output_format.is_object(data)
    return JsonResponse(await render(vectors, model=model, base64=base64, as_object=as_object))
