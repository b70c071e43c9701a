"""Labels of a classifier matched with a question's answers by name."""

from __future__ import annotations

import pytest
from decisions import request_of

from functions.decide.label_matching import LabelMatcher, normalize_label

pytestmark = pytest.mark.anyio
TEXT = "river stone light"


@pytest.mark.parametrize(("one", "other"), [("Very-Good", "very good"), ("LABEL_0", "label 0"), ("a", "A")])
def test_names_that_mean_the_same(one: str, other: str) -> None:
    assert normalize_label(one) == normalize_label(other)


@pytest.mark.parametrize(("one", "other"), [("-1", "1"), ("-", "+"), ("stars -2", "stars 2")])
def test_a_sign_is_a_part_of_a_name(one: str, other: str) -> None:
    assert normalize_label(one) != normalize_label(other)


@pytest.mark.parametrize(
    ("labels", "choices", "places"),
    [
        (["1", "0", "-1"], ["-1", "1"], [2, 0]),
        (["1", "0"], ["-1", "0"], None),
        (["+", "-"], ["-", "+"], [1, 0]),
        (["+", "-"], ["_", "+"], None),
        (["US", "us", "a"], ["us", "US"], [1, 0]),
        (["US", "us", "a"], ["Us", "a"], None),
        (["same", "same", "a"], ["same", "a"], None),
    ],
)
def test_labels_that_are_spelled_alike(labels: list[str], choices: list[str], places: list[int] | None) -> None:
    """A choice means the label that is spelled like it, and never one of two that it might mean."""
    assert LabelMatcher(labels).match(request_of(TEXT, [("Which?", choices)]).questions[0]) == places


def test_two_choices_of_one_label_match_nothing() -> None:
    asked = request_of(TEXT, [("Which?", ["a b", "a_b"]), ("Which?", [True, False])]).questions
    assert LabelMatcher(["a-b", "c"]).match(asked[0]) is None
    assert LabelMatcher(["False", "True"]).match(asked[1]) == [1, 0]
