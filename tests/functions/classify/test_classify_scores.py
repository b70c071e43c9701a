"""Logits as scores, windows put together, and the choice of what is listed, as arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from functions.classify.cli import ClassifyCli
from functions.classify.scores import aggregate_windows, apply_activation, log_softmax, resolve_activation
from functions.classify.selection import Predictions, classifications, thresholds


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


def read(scores: list[list[float]], *, multi_label: bool = False) -> Predictions:
    rows = np.array(scores)
    return Predictions(
        labels=["a", "b", "c"], scores=rows, raw=rows * 10, multi_label=multi_label, windows=[1] * len(rows),
        truncated=[False] * len(rows), tokens=3,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "multi_label", "top_k", "listed"),
    [
        (None, False, None, ["b", "c", "a"]),
        (None, True, None, ["b", "c"]),
        (0.6, False, None, ["b"]),
        (0.5, True, None, ["b", "c"]),
        (0.95, True, None, []),
        (0.0, True, 1, ["b"]),
        ({"b": 0.95}, True, None, ["c"]),
        ({"b": 0.95, "a": 0.1}, True, None, ["c", "a"]),
        ({"b": 0.95}, False, None, ["c", "a"]),
    ],
)
def test_what_is_listed(said: Any, multi_label: bool, top_k: int | None, listed: list[str]) -> None:
    found = read([[0.2, 0.9, 0.5]], multi_label=multi_label)
    least = thresholds(said, found.labels, multi_label=multi_label)
    (item,) = classifications(found, least, top_k, raw=False)
    assert [entry.label for entry in item.labels] == listed
    assert (item.label, item.score) == ("b", 0.9)
    assert item.all_scores == {"a": 0.2, "b": 0.9, "c": 0.5}


def test_equal_scores_keep_the_model_s_order() -> None:
    found = read([[0.4, 0.4, 0.4]])
    (item,) = classifications(found, thresholds(None, found.labels, multi_label=False), None, raw=True)
    assert [entry.label for entry in item.labels] == ["a", "b", "c"]
    assert item.all_scores == {"a": 4.0, "b": 4.0, "c": 4.0}


def test_the_shell_prints_a_line_for_each_label() -> None:
    shell = ClassifyCli()
    listed = {"label": "a", "score": 0.9, "labels": [{"label": "a", "score": 0.9}, {"label": "b", "score": 0.05}]}
    none = {"label": "a", "score": 0.25, "labels": []}
    assert shell.body("some words") == {"input": "some words"}
    assert shell.show({"data": [listed, none]}) == "a 0.9000\nb 0.0500\nnone (a 0.2500)"
