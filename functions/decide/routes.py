"""HTTP routes of the decide function: OpenAI's `/v1/decisions`."""

from __future__ import annotations

from litestar import post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from functions.decide.api import Decision, DecisionRequest, Decisions, DecisionUsage, InputTokensDetails
from functions.decide.operations import DECIDE
from host.http import HostDependency
from host.http.response import JsonResponse


@post(
    ["/v1/decisions", "/decisions"],
    status_code=200,
    summary="Answer questions about an input with probabilities",
    tags=["decide"],
    responses={200: ResponseSpec(Decision, generate_examples=False, description="In the order of the questions")},
)
async def create_decision(data: JSONBody[DecisionRequest], host: HostDependency) -> JsonResponse:
    """Return an answer to each question, in their order; one that cannot be answered is a refusal."""
    model = host.served_name(data.model, DECIDE)
    return JsonResponse(_body(model, await host.call(model, DECIDE, data)))


def _body(model: str, decisions: Decisions) -> Decision:
    tokens = decisions.usage.prompt_tokens
    details = InputTokensDetails(
        cached_tokens=decisions.usage.cached_tokens, cache_write_tokens=decisions.cache_write_tokens
    )
    usage = DecisionUsage(input_tokens=tokens, input_tokens_details=details, total_tokens=tokens)
    return Decision(answers=decisions.answers, model=model, usage=usage)
