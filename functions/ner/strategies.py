"""The probabilities of a word's tokens made one label and one score, in one of four ways.

`first`, `average` and `max` are those of Transformers' token classification pipeline. `simple` takes each token by
itself as that one does, but where a word's tokens disagree they vote, so that no word is cut.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from functions.ner.tags import Tags

Strategy = Literal["simple", "first", "average", "max"]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_SLICE = 4096
"""Words of a text that are decided at once, so that its probabilities are never all there beside its logits."""


class Verdicts(msgspec.Struct, frozen=True):
    """What was decided for each word; all arrays are (words,)."""

    opens: Integers
    """The label that says whether an entity begins with the word, and of which type."""
    closes: Integers
    """The label that says whether one ends with it."""
    totals: npt.NDArray[np.float64]
    """Scores summed over what counts: the word, or with `simple` its tokens that voted for the label."""
    counts: Integers


def probabilities(logits: Floats) -> Floats:
    """Return the softmax over labels, (tokens, labels)."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), dtype=np.float32)


def judged(logits: Floats, starts: Integers, strategy: Strategy, tags: Tags) -> Verdicts:
    """Return a verdict for each word of a text, given its logits; see `decide`."""
    slices: list[Verdicts] = []
    for at in range(0, len(starts), _SLICE):
        own = starts[at : at + _SLICE]
        end = starts[at + _SLICE] if at + _SLICE < len(starts) else len(logits)
        slices.append(decide(probabilities(logits[own[0] : end]), own - own[0], strategy, tags))
    if len(slices) == 1:
        return slices[0]
    return Verdicts(*(np.concatenate([getattr(one, name) for one in slices]) for name in Verdicts.__struct_fields__))


def decide(chances: Floats, starts: Integers, strategy: Strategy, tags: Tags) -> Verdicts:
    """Return a verdict for each word; `chances` is (tokens, labels), `starts` the first token of each word."""
    if strategy == "simple":
        return _simple(chances, starts, tags)
    rows: npt.NDArray[Any]
    if strategy == "average":
        sizes = np.diff(np.append(starts, len(chances)))
        rows = np.add.reduceat(chances, starts, axis=0) / sizes[:, None].astype(np.float32)
    else:
        rows = chances[starts if strategy == "first" else _surest(chances, starts)]
    labels = rows.argmax(axis=1)
    totals = rows.max(axis=1).astype(np.float64)
    return Verdicts(labels, labels, totals, np.ones(len(rows), dtype=np.int64))


def _surest(chances: Floats, starts: Integers) -> Integers:
    """Return the token of each word that is surest of its label, the first one of equals."""
    sure = chances.max(axis=1)
    best = np.maximum.reduceat(sure, starts)
    word = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(sure))))
    candidates = np.where(sure == best[word], np.arange(len(sure)), len(sure))
    return np.asarray(np.minimum.reduceat(candidates, starts))


def _simple(chances: Floats, starts: Integers, tags: Tags) -> Verdicts:
    labels = chances.argmax(axis=1)
    scores = chances[np.arange(len(chances)), labels].astype(np.float64)
    types = tags.types[labels]
    ends = np.append(starts[1:], len(chances))
    opens, closes = labels[starts], labels[ends - 1]
    totals, counts = np.add.reduceat(scores, starts), ends - starts
    for word in np.flatnonzero(np.minimum.reduceat(types, starts) != np.maximum.reduceat(types, starts)):
        tokens = np.arange(starts[word], ends[word])
        winner = _elected(types[tokens], scores[tokens])
        voters = tokens[types[tokens] == winner]
        opens[word], closes[word] = labels[voters[0]], labels[voters[-1]]
        totals[word], counts[word] = scores[voters].sum(), len(voters)
    return Verdicts(opens, closes, totals, counts)


def _elected(types: Integers, scores: npt.NDArray[np.float64]) -> int:
    """Return the type with most votes, weighed by score, the first of equals; tokens of no entity have none."""
    votes: dict[int, float] = {}
    for kind, score in zip(types.tolist(), scores.tolist(), strict=True):
        if kind >= 0:
            votes[kind] = votes.get(kind, 0.0) + score
    return max(votes, key=votes.__getitem__)
