"""Spellings that exclude each other, and answers made of their probabilities."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
import walks
from decisions import request_of
from hypothesis import given
from hypothesis import strategies as some

from functions.decide.answers import answer, mass
from functions.decide.api import ChoiceAnswer, PredicateAnswer, RefusalAnswer, ScoreAnswer
from functions.decide.spellings import Spellings, shares, total

INF, NAN = math.inf, math.nan


def question(kind: Any) -> Any:
    return request_of("x", [kind]).questions[0]


CHOICE = question(("Which?", ["a", True, "b"]))
SCORE = question({"type": "score", "instructions": "x", "name": "s", "levels": [{"label": c} for c in "abc"]})


def test_a_longer_spelling_takes_its_part_of_a_shorter_one() -> None:
    events = Spellings([[(1,)], [(1, 2)], [(1, 2, 3), (4,)]])
    assert events.spellings == [(1,), (1, 2), (1, 2, 3), (4,)]
    logs = [math.log(part) for part in (0.5, 0.25, 0.1, 0.2)]
    assert [math.exp(log) for log in events.logs(logs)] == pytest.approx([0.25, 0.15, 0.3])


def test_spellings_of_one_answer_are_not_counted_twice() -> None:
    events = Spellings([[(1,), (1, 2), (1,)], [(3,)]])
    assert math.exp(events.logs([math.log(0.5), math.log(0.2), math.log(0.3)])[0]) == pytest.approx(0.5)


def test_an_answer_without_a_spelling_of_its_own_is_never_given() -> None:
    assert Spellings([[(1,)], [(1,)]]).logs([-1.0]) == [-1.0, -INF]


def test_rounding_never_makes_a_probability_negative() -> None:
    assert Spellings([[(1,)], [(1, 2)]]).logs([-1.0, -1.0 + 1e-12]) == [-INF, -1.0 + 1e-12]


def test_what_is_no_number_stays_none() -> None:
    found = Spellings([[(1,)], [(1, 2)], [(3,)]]).logs([-1.0, NAN, -2.0])
    assert math.isnan(found[0]) and math.isnan(found[1]) and found[2] == -2.0


@pytest.mark.soak
@walks.examples(100, 3000)
@given(
    some.lists(some.lists(some.tuples(some.integers(0, 2), some.integers(0, 2)), min_size=1, max_size=3), min_size=1)
)
def test_events_exclude_each_other(drawn: list[list[tuple[int, int]]]) -> None:
    """A model of fair dice with three sides says one of nine words of two tokens, or begins with one of them."""
    answers = [[ids if ids[1] else ids[:1] for ids in spellings] for spellings in drawn]
    events = Spellings(answers)
    found = events.logs([math.log(3.0 ** -len(ids)) for ids in events.spellings])
    named = set(events.spellings)
    covered = sum((first,) in named or (first, second) in named for first in range(3) for second in range(3))
    assert sum(math.exp(log) for log in found) == pytest.approx(covered / 9)


def test_total_and_shares() -> None:
    assert total([]) == -INF
    assert total([-1000.0, -1000.0]) == pytest.approx(-1000 + math.log(2))
    assert math.isnan(total([0.0, NAN]))
    assert shares([-1000.0, -1000.0, -INF]) == [0.5, 0.5, 0.0]
    assert shares([0.0, -2.0], temperature=2.0)[0] == pytest.approx(1 / (1 + math.exp(-1)))


def test_the_kinds_of_answers() -> None:
    thirds = [math.log(part) for part in (0.2, 0.5, 0.3)]
    assert answer(question("Is it?"), [math.log(0.3), math.log(0.1)]) == PredicateAnswer(
        probability=pytest.approx(0.75)
    )
    chosen = answer(CHOICE, thirds)
    assert isinstance(chosen, ChoiceAnswer)
    assert (chosen.choice, chosen.confidence) == (True, pytest.approx(0.5))
    assert [one.value for one in chosen.probabilities] == ["a", True, "b"]
    scored = answer(SCORE, thirds)
    assert isinstance(scored, ScoreAnswer)
    assert (scored.name, scored.score, scored.confidence) == ("s", pytest.approx(1.1), pytest.approx(0.5))
    assert [(one.label, one.value) for one in scored.probabilities] == [("a", 0), ("b", 1), ("c", 2)]


def test_answers_on_the_wire() -> None:
    found = msgspec.to_builtins(answer(CHOICE, [0.0, -INF, -INF]))
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
    assert answer(SCORE, logs) == RefusalAnswer(name="s")


def test_the_prior_is_divided_away() -> None:
    said, before = [math.log(0.6), math.log(0.3), -INF], [math.log(0.6), math.log(0.1), -INF]
    found = answer(CHOICE, said, prior=before)
    assert [one.probability for one in found.probabilities] == pytest.approx([0.25, 0.75, 0])


def test_the_mass_of_answers() -> None:
    assert mass([math.log(0.2), math.log(0.3)]) == pytest.approx(0.5)
    assert mass([NAN, -1.0]) == 0
