"""Which labels of a text are listed: those that reach their thresholds, best first, so many of them at most.

It knows scores and names; how the scores came about is others' business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from functions.classify.api import Classification, Scored
from functions.classify.scores import Numbers

_HALF = 0.5


class Predictions(msgspec.Struct, kw_only=True, frozen=True):
    """What a model says of the texts of a request."""

    labels: Sequence[str]
    scores: Numbers
    """(texts, labels)."""
    raw: Numbers
    """The same as the model's own numbers, before softmax or sigmoid."""
    independent: bool
    """Several labels may be right."""
    windows: list[int]
    truncated: list[bool]
    tokens: int
    """Computed in all."""


def thresholds(said: float | Mapping[str, float] | None, labels: Sequence[str], *, independent: bool) -> Numbers:
    """Return the threshold of each label: what is said of it, else 0.5 where several may be right and none where not.

    Numbers of a regression may be anything, so none is minus infinity.
    """
    if isinstance(said, int | float):
        return np.full(len(labels), float(said))
    default = _HALF if independent else -np.inf
    return np.array([(said or {}).get(label, default) for label in labels], dtype=np.float64)


def classifications(found: Predictions, least: Numbers, top_k: int | None, *, raw: bool) -> Iterator[Classification]:
    """Yield what each text is. With `raw`, scores are the model's own numbers; what is listed stays the same."""
    shown = found.raw if raw else found.scores
    order = np.argsort(-found.scores, axis=1, kind="stable")
    reached = found.scores >= least
    for at, (places, told) in enumerate(zip(order.tolist(), shown.tolist(), strict=True)):
        best = places[0]
        listed = [place for place in places if reached[at, place]][:top_k]
        yield Classification(
            index=at,
            label=found.labels[best],
            score=told[best],
            labels=[Scored(label=found.labels[place], score=told[place]) for place in listed],
            all_scores=dict(zip(found.labels, told, strict=True)),
            windows=found.windows[at],
            truncated=found.truncated[at],
        )
