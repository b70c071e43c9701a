"""HTTP routes of the rerank function: `/v1/rerank` and Cohere's `/v2/rerank`, in four dialects."""

from __future__ import annotations

from typing import Any

from litestar import Request, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from functions.rerank.operations import RERANK
from functions.rerank.request_dialects import RerankBody, to_request
from functions.rerank.response import RerankAnswer, render
from host.http import HostDependency
from host.http.response import JsonResponse

_COHERE2 = "/v2/rerank"


@post(
    ["/v1/rerank", "/rerank", _COHERE2],
    status_code=200,
    summary="Rank documents by how well they answer a query",
    tags=["rerank"],
    responses={200: ResponseSpec(RerankAnswer, generate_examples=False, description="Best first")},
)
async def rerank(data: JSONBody[RerankBody], request: Request[Any, Any, Any], host: HostDependency) -> JsonResponse:
    """Return the documents' indexes with their scores, best first."""
    cohere2 = request.scope["path"].rstrip("/") == _COHERE2
    rerank_request = to_request(data, cohere2=cohere2)
    scores = await host.call(rerank_request.model, RERANK, rerank_request)
    return JsonResponse(render(data, scores, cohere2=cohere2))
