"""The labels that are listed for a text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from functions.classify.top_labels import Predictions, classifications, thresholds


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
