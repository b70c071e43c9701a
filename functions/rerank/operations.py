"""The operation of the rerank function."""

from __future__ import annotations

from functions.rerank.api import RerankRequest, Scores
from functions.rerank.request_dialects import check
from host.function import Operation

RERANK: Operation[RerankRequest, Scores] = Operation(
    name="rerank", request=RerankRequest, answer=Scores, check=check, path="/v1/rerank"
)
