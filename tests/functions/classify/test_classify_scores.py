"""Logits as scores, and windows aggregated, as arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from functions.classify.scores import aggregate_windows, apply_activation, log_softmax, resolve_activation


@pytest.mark.parametrize(
    ("said", "problem", "labels", "chosen"),
    [
        ("auto", None, 3, "softmax"),
        ("auto", None, 1, "sigmoid"),
        ("auto", "single_label_classification", 2, "softmax"),
        ("auto", "single_label_classification", 1, "sigmoid"),
        ("auto", "multi_label_classification", 3, "sigmoid"),
        ("auto", "regression", 1, "none"),
        ("auto", "regression", 3, "none"),
        ("softmax", "multi_label_classification", 3, "softmax"),
        ("none", None, 3, "none"),
        ("sigmoid", "regression", 1, "sigmoid"),
    ],
)
def test_the_activation_is_the_model_s_unless_it_is_said(said: Any, problem: Any, labels: int, chosen: str) -> None:
    assert resolve_activation(said, problem, labels) == chosen


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("logits", [[0.0, 1.0, -1.0], [1e4, -1e4, 0.0], [-1e30, 1e30, 3.0]])
def test_no_logit_is_too_large(logits: list[float]) -> None:
    exclusive, apart = apply_activation(logits, "softmax"), apply_activation(logits, "sigmoid")
    assert exclusive.sum() == pytest.approx(1)
    assert np.isfinite(apart).all()
    assert ((apart >= 0) & (apart <= 1)).all()
    assert list(exclusive.argsort()) == list(np.argsort(logits))
    assert apply_activation(logits, "none").tolist() == logits


def test_sigmoid_and_softmax_by_hand() -> None:
    assert apply_activation([0.0, np.log(3)], "softmax") == pytest.approx([0.25, 0.75])
    assert apply_activation([0.0, np.log(3), -np.log(3)], "sigmoid") == pytest.approx([0.5, 0.75, 0.25])
    assert log_softmax([[0.0, np.log(3)]])[0] == pytest.approx(np.log([0.25, 0.75]))


@pytest.mark.parametrize("how", ["mean", "max"])
def test_one_window_is_itself(how: Any) -> None:
    assert aggregate_windows([[1.0, 2.0]], [7], how, "softmax").tolist() == [1.0, 2.0]


def test_a_window_counts_by_its_tokens() -> None:
    assert aggregate_windows([[1.0, 0.0], [4.0, 3.0]], [20, 10], "mean", "softmax") == pytest.approx([2.0, 1.0])


@pytest.mark.parametrize("shift", [0.0, 5.0, -3.0])
def test_the_surest_window_does_not_depend_on_what_softmax_cannot_see(shift: float) -> None:
    """Adding a number to all logits of a window changes none of its probabilities."""
    rows = np.array([[2.0, 0.0], [0.0, 1.0]])
    moved = rows + np.array([[0.0], [shift]])
    wanted = apply_activation(rows, "softmax").max(0)
    assert apply_activation(aggregate_windows(moved, [1, 1], "max", "softmax"), "softmax") == pytest.approx(
        wanted / wanted.sum()
    )
