"""Requests for decisions in short, and the numbers of answers."""

from __future__ import annotations

from typing import Any

import msgspec

from functions.decide.api import Answer, DecisionRequest


def request_of(input_: Any, questions: list[Any], **more: Any) -> DecisionRequest:
    """Return a request; a question that is a text is a predicate, one with a list behind it a choice."""
    return msgspec.convert(
        {"model": "m", "input": input_, "questions": [_question(one) for one in questions], **more}, DecisionRequest
    )


def _question(one: Any) -> dict[str, Any]:
    if isinstance(one, str):
        return {"type": "predicate", "instructions": one}
    if isinstance(one, tuple):
        return {"type": "choice", "instructions": one[0], "choices": [{"value": value} for value in one[1]]}
    return dict(one)


def numbers(answer: Answer) -> list[float]:
    """Return all probabilities of an answer."""
    found = msgspec.to_builtins(answer)
    if "probability" in found:
        return [found["probability"]]
    return [one["probability"] for one in found["probabilities"]]
