"""Selects the labels to list for each text: those that reach their thresholds, best first, at most `top_k`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from functions.classify.api import Classification, LabelScore
from functions.classify.scores import FloatArray

_HALF = 0.5


class Predictions(msgspec.Struct, kw_only=True, frozen=True):
    """The scores of a request's texts."""

    labels: Sequence[str]
    scores: FloatArray
    """(texts, labels)."""
    raw: FloatArray
    """The logits behind `scores`, of the same shape."""
    multi_label: bool
    """Whether several labels may be right, each scored by itself."""
    windows: list[int]
    """Windows of each text."""
    truncated: list[bool]
    """Whether the end of each text was left out."""
    tokens: int
    """Tokens computed in all."""


def thresholds(option: float | Mapping[str, float] | None, labels: Sequence[str], *, multi_label: bool) -> FloatArray:
    """Return the threshold of each label (labels,): by default 0.5 with `multi_label`, else none.

    None is minus infinity, since the scores of a regression may be any number.
    """
    if isinstance(option, int | float):
        return np.full(len(labels), float(option))
    default = _HALF if multi_label else -np.inf
    return np.array([(option or {}).get(label, default) for label in labels], dtype=np.float64)


def classifications(
    predictions: Predictions, least: FloatArray, top_k: int | None, *, raw: bool
) -> Iterator[Classification]:
    """Yield the classification of each text; `least` are the thresholds.

    With `raw` the scores are logits; which labels are listed is still decided by `scores`.
    """
    shown = predictions.raw if raw else predictions.scores
    order = np.argsort(-predictions.scores, axis=1, kind="stable")
    reached = predictions.scores >= least
    for at, (ranking, scores) in enumerate(zip(order.tolist(), shown.tolist(), strict=True)):
        best = ranking[0]
        listed = [label for label in ranking if reached[at, label]][:top_k]
        yield Classification(
            index=at,
            label=predictions.labels[best],
            score=scores[best],
            labels=[LabelScore(label=predictions.labels[label], score=scores[label]) for label in listed],
            all_scores=dict(zip(predictions.labels, scores, strict=True)),
            windows=predictions.windows[at],
            truncated=predictions.truncated[at],
        )
