"""The operation of the decide function."""

from __future__ import annotations

from functions.decide.api import DecisionRequest, Decisions
from functions.decide.request_checks import check
from host.function import Operation

DECIDE: Operation[DecisionRequest, Decisions] = Operation(
    name="decide", request=DecisionRequest, answer=Decisions, check=check, path="/v1/decisions"
)
