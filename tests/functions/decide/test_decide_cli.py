"""The command line of decisions: requests from lines, and answers as lines."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from functions.decide.api import DecisionRequest
from functions.decide.cli import DecideCli
from functions.decide.request_checks import check
from host.errors import InvalidRequest


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("Is it nice?\nA lovely day.", {"type": "predicate", "instructions": "Is it nice?"}),
        (
            "Topic? sports | my travel\nA trip.",
            {"type": "choice", "instructions": "Topic?", "choices": [{"value": "sports"}, {"value": "my travel"}]},
        ),
        (
            "good|bad\nA trip.",
            {
                "type": "choice",
                "instructions": "Which of these is it?",
                "choices": [{"value": "good"}, {"value": "bad"}],
            },
        ),
    ],
)
def test_a_command_line_asks(line: str, body: dict[str, Any]) -> None:
    found = DecideCli().body(line)
    assert found["questions"] == [body]
    assert found["input"] == line.partition("\n")[2]


@pytest.mark.parametrize("line", ["Is it nice?", "Is it nice?\n \n", "good | bad"])
def test_a_command_line_without_a_text_is_refused_as_over_http(line: str) -> None:
    body = DecideCli().body(line)
    with pytest.raises(InvalidRequest, match="`input` is empty") as caught:
        check(msgspec.convert({"model": "m", **body}, DecisionRequest))
    assert caught.value.param == "input"


def test_a_command_line_shows_the_most_probable_first() -> None:
    probabilities = [{"value": "a", "probability": 0.25}, {"value": True, "probability": 0.75}]
    answers = [
        {"type": "predicate", "probability": 0.75},
        {"type": "choice", "probabilities": probabilities},
        {"type": "score", "probabilities": [{"label": "low", "value": 0, "probability": 1.0}]},
        {"type": "refusal"},
    ]
    shown = DecideCli().show({"answers": answers})
    assert shown.splitlines() == ["yes (0.750 yes)", "0.750 true", "0.250 a", "1.000 low", "no answer"]
