"""HTTP routes of the ner function: `/v1/ner`."""

from __future__ import annotations

import msgspec
from litestar import post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from functions.ner.api import NerList, NerRequest, NerUsage
from functions.ner.operations import NER
from host.http import HostDependency
from host.http.response import JsonResponse


@post(
    ["/v1/ner", "/ner"],
    status_code=200,
    summary="Find entities in texts",
    tags=["ner"],
    responses={200: ResponseSpec(NerList, generate_examples=False, description="In the order of the texts")},
)
async def find_entities(data: JSONBody[NerRequest], host: HostDependency) -> JsonResponse:
    """Return the entities of each text, in their order."""
    answer = await host.call(data.model or "", NER, data)
    tokens = answer.usage.prompt_tokens
    usage = NerUsage(prompt_tokens=tokens, total_tokens=tokens)
    body = NerList(model=data.model or answer.model, data=answer.data, usage=usage)
    return JsonResponse(msgspec.json.encode(body))
