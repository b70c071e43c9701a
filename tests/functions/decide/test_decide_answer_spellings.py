"""Probabilities of answers with several spellings, which exclude each other."""

from __future__ import annotations

import math

import pytest
import walks
from hypothesis import given
from hypothesis import strategies as some

from functions.decide.answer_spellings import AnswerSpellings, logsumexp, softmax

INF, NAN = math.inf, math.nan


def test_a_longer_spelling_takes_its_part_of_a_shorter_one() -> None:
    answers_ = AnswerSpellings([[(1,)], [(1, 2)], [(1, 2, 3), (4,)]])
    assert answers_.token_ids == [(1,), (1, 2), (1, 2, 3), (4,)]
    logs = [math.log(part) for part in (0.5, 0.25, 0.1, 0.2)]
    assert [math.exp(log) for log in answers_.answer_logprobs(logs)] == pytest.approx([0.25, 0.15, 0.3])


def test_spellings_of_one_answer_are_not_counted_twice() -> None:
    answers_ = AnswerSpellings([[(1,), (1, 2), (1,)], [(3,)]])
    assert math.exp(answers_.answer_logprobs([math.log(0.5), math.log(0.2), math.log(0.3)])[0]) == pytest.approx(0.5)


def test_an_answer_without_a_spelling_of_its_own_is_never_given() -> None:
    assert AnswerSpellings([[(1,)], [(1,)]]).answer_logprobs([-1.0]) == [-1.0, -INF]


def test_rounding_never_makes_a_probability_negative() -> None:
    assert AnswerSpellings([[(1,)], [(1, 2)]]).answer_logprobs([-1.0, -1.0 + 1e-12]) == [-INF, -1.0 + 1e-12]


def test_what_is_no_number_stays_none() -> None:
    found = AnswerSpellings([[(1,)], [(1, 2)], [(3,)]]).answer_logprobs([-1.0, NAN, -2.0])
    assert math.isnan(found[0]) and math.isnan(found[1]) and found[2] == -2.0


@pytest.mark.soak
@walks.examples(100, 3000)
@given(
    some.lists(some.lists(some.tuples(some.integers(0, 2), some.integers(0, 2)), min_size=1, max_size=3), min_size=1)
)
def test_events_exclude_each_other(drawn: list[list[tuple[int, int]]]) -> None:
    """A model of fair dice with three sides says one of nine words of two tokens, or begins with one of them."""
    answers = [[ids if ids[1] else ids[:1] for ids in spellings] for spellings in drawn]
    answers_ = AnswerSpellings(answers)
    found = answers_.answer_logprobs([math.log(3.0 ** -len(ids)) for ids in answers_.token_ids])
    named = set(answers_.token_ids)
    covered = sum((first,) in named or (first, second) in named for first in range(3) for second in range(3))
    assert sum(math.exp(log) for log in found) == pytest.approx(covered / 9)


def test_total_and_shares() -> None:
    assert logsumexp([]) == -INF
    assert logsumexp([-1000.0, -1000.0]) == pytest.approx(-1000 + math.log(2))
    assert math.isnan(logsumexp([0.0, NAN]))
    assert softmax([-1000.0, -1000.0, -INF]) == [0.5, 0.5, 0.0]
    assert softmax([0.0, -2.0], temperature=2.0)[0] == pytest.approx(1 / (1 + math.exp(-1)))
