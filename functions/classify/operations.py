"""The operations of the classify function: `classify`, and `moderate` for OpenAI's moderations."""

from __future__ import annotations

from functions.classify.api import ClassifyAnswer, ClassifyRequest, ModerationAnswer, ModerationRequest
from functions.classify.inputs import check, check_moderation
from host.function import Operation

CLASSIFY: Operation[ClassifyRequest, ClassifyAnswer] = Operation(
    name="classify", request=ClassifyRequest, answer=ClassifyAnswer, check=check, path="/v1/classify"
)
MODERATE: Operation[ModerationRequest, ModerationAnswer] = Operation(
    name="moderate",
    request=ModerationRequest,
    answer=ModerationAnswer,
    check=check_moderation,
    path="/v1/moderations",
    option="moderation",
)
