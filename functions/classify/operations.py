"""What a classify function can be asked: labels for texts, and OpenAI's moderations."""

from __future__ import annotations

from functions.classify.api import Classified, ClassifyRequest, Moderated, ModerationRequest
from functions.classify.inputs import check, check_moderation
from host.function import Operation

CLASSIFY: Operation[ClassifyRequest, Classified] = Operation(
    name="classify", request=ClassifyRequest, answer=Classified, check=check, path="/v1/classify"
)
MODERATE: Operation[ModerationRequest, Moderated] = Operation(
    name="moderate",
    request=ModerationRequest,
    answer=Moderated,
    check=check_moderation,
    path="/v1/moderations",
    option="moderation",
)
