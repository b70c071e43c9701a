"""Answers built from log-probabilities."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from decisions import request_of

from functions.decide.answers import build_answer, total_probability
from functions.decide.api import ChoiceAnswer, PredicateAnswer, RefusalAnswer, ScoreAnswer

INF, NAN = math.inf, math.nan


def question(kind: Any) -> Any:
    return request_of("x", [kind]).questions[0]


CHOICE = question(("Which?", ["a", True, "b"]))
SCORE = question({"type": "score", "instructions": "x", "name": "s", "levels": [{"label": c} for c in "abc"]})


def test_the_kinds_of_answers() -> None:
    thirds = [math.log(part) for part in (0.2, 0.5, 0.3)]
    assert build_answer(question("Is it?"), [math.log(0.3), math.log(0.1)]) == PredicateAnswer(
        probability=pytest.approx(0.75)
    )
    chosen = build_answer(CHOICE, thirds)
    assert isinstance(chosen, ChoiceAnswer)
    assert (chosen.choice, chosen.confidence) == (True, pytest.approx(0.5))
    assert [one.value for one in chosen.probabilities] == ["a", True, "b"]
    scored = build_answer(SCORE, thirds)
    assert isinstance(scored, ScoreAnswer)
    assert (scored.name, scored.score, scored.confidence) == ("s", pytest.approx(1.1), pytest.approx(0.5))
    assert [(one.label, one.value) for one in scored.probabilities] == [("a", 0), ("b", 1), ("c", 2)]


def test_answers_on_the_wire() -> None:
    found = msgspec.to_builtins(build_answer(CHOICE, [0.0, -INF, -INF]))
    assert found == {
        "type": "choice",
        "name": None,
        "choice": "a",
        "confidence": 1.0,
        "probabilities": [
            {"value": "a", "probability": 1.0},
            {"value": True, "probability": 0.0},
            {"value": "b", "probability": 0.0},
        ],
    }


@pytest.mark.parametrize("logs", [[NAN, -1.0, -1.0], [-INF, -INF, -INF], [INF, -1.0, -1.0]])
def test_a_question_without_numbers_is_refused(logs: list[float]) -> None:
    assert build_answer(SCORE, logs) == RefusalAnswer(name="s")


def test_the_prior_is_divided_away() -> None:
    said, before = [math.log(0.6), math.log(0.3), -INF], [math.log(0.6), math.log(0.1), -INF]
    found = build_answer(CHOICE, said, prior=before)
    assert [one.probability for one in found.probabilities] == pytest.approx([0.25, 0.75, 0])


def test_the_mass_of_answers() -> None:
    assert total_probability([math.log(0.2), math.log(0.3)]) == pytest.approx(0.5)
    assert total_probability([NAN, -1.0]) == 0
