"""HTTP routes of the classify function: `/v1/classify` and OpenAI's `/v1/moderations`."""

from __future__ import annotations

import uuid

from litestar import post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from functions.classify.api import ClassificationList, ClassifyRequest, ClassifyUsage, ModerationList, ModerationRequest
from functions.classify.operations import CLASSIFY, MODERATE
from host.http import HostDependency
from host.http.response import JsonResponse


@post(
    ["/v1/classify", "/classify"],
    status_code=200,
    summary="Classify texts and pairs of texts",
    tags=["classify"],
    responses={200: ResponseSpec(ClassificationList, generate_examples=False, description="In the order of the texts")},
)
async def classify(data: JSONBody[ClassifyRequest], host: HostDependency) -> JsonResponse:
    """Return labels with scores for each text or pair, in their order."""
    answer = await host.call(data.model or "", CLASSIFY, data)
    tokens = answer.usage.prompt_tokens
    usage = ClassifyUsage(prompt_tokens=tokens, total_tokens=tokens)
    model = data.model or answer.model
    return JsonResponse(ClassificationList(data=answer.data, total_count=len(answer.data), model=model, usage=usage))


@post(
    ["/v1/moderations", "/moderations"],
    status_code=200,
    summary="Find harmful content",
    tags=["classify"],
    responses={200: ResponseSpec(ModerationList, generate_examples=False, description="In the order of the inputs")},
)
async def create_moderation(data: JSONBody[ModerationRequest], host: HostDependency) -> JsonResponse:
    """Return whether each input is harmful, with the score of each of OpenAI's categories."""
    answer = await host.call(data.model or "", MODERATE, data)
    name = f"modr-{uuid.uuid4().hex}"
    return JsonResponse(ModerationList(id=name, model=data.model or answer.model, results=answer.results))
