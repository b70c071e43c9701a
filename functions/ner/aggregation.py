"""Combines the label probabilities of a word's tokens into one label and score, by one of four strategies.

`first`, `average` and `max` are those of Transformers' token classification pipeline. `simple` takes each token by
itself as there, but where a word's tokens disagree they vote, so that no word is split.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from functions.ner.tags import TagScheme

Strategy = Literal["simple", "first", "average", "max"]
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_SLICE = 4096
"""Words computed at once, so that a long text's probabilities are never all in memory beside its logits."""


class WordLabels(msgspec.Struct, frozen=True):
    """The labels and scores of a text's words; all arrays are (words,)."""

    begin_labels: Integers
    """The label of the word's type, and of whether an entity begins with it."""
    end_labels: Integers
    """The label of whether an entity ends with the word."""
    totals: npt.NDArray[np.float64]
    """The word's score; with `simple` the sum over its tokens that voted for the label."""
    counts: Integers
    """How many scores `totals` is a sum of."""


def probabilities(logits: Floats) -> Floats:
    """Return the softmax over labels, (tokens, labels)."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), dtype=np.float32)


def word_labels(logits: Floats, starts: Integers, strategy: Strategy, tags: TagScheme) -> WordLabels:
    """Return the label of each word from logits (tokens, labels); see `label_words`."""
    slices: list[WordLabels] = []
    for at in range(0, len(starts), _SLICE):
        own = starts[at : at + _SLICE]
        end = starts[at + _SLICE] if at + _SLICE < len(starts) else len(logits)
        slices.append(label_words(probabilities(logits[own[0] : end]), own - own[0], strategy, tags))
    if len(slices) == 1:
        return slices[0]
    return WordLabels(
        *(np.concatenate([getattr(one, name) for one in slices]) for name in WordLabels.__struct_fields__)
    )


def label_words(probs: Floats, starts: Integers, strategy: Strategy, tags: TagScheme) -> WordLabels:
    """Return the label of each word; `probs` is (tokens, labels), `starts` (words,) the first token of each."""
    if strategy == "simple":
        return _simple(probs, starts, tags)
    rows: npt.NDArray[Any]
    if strategy == "average":
        sizes = np.diff(np.append(starts, len(probs)))
        rows = np.add.reduceat(probs, starts, axis=0) / sizes[:, None].astype(np.float32)
    else:
        rows = probs[starts if strategy == "first" else _most_confident(probs, starts)]
    labels = rows.argmax(axis=1)
    totals = rows.max(axis=1).astype(np.float64)
    return WordLabels(labels, labels, totals, np.ones(len(rows), dtype=np.int64))


def _most_confident(probs: Floats, starts: Integers) -> Integers:
    """Return the token of each word with the highest probability, the first of equals."""
    sure = probs.max(axis=1)
    best = np.maximum.reduceat(sure, starts)
    word = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(sure))))
    candidates = np.where(sure == best[word], np.arange(len(sure)), len(sure))
    return np.asarray(np.minimum.reduceat(candidates, starts))


def _simple(probs: Floats, starts: Integers, tags: TagScheme) -> WordLabels:
    labels = probs.argmax(axis=1)
    scores = probs[np.arange(len(probs)), labels].astype(np.float64)
    types = tags.types[labels]
    ends = np.append(starts[1:], len(probs))
    begin_labels, end_labels = labels[starts], labels[ends - 1]
    totals, counts = np.add.reduceat(scores, starts), ends - starts
    for word in np.flatnonzero(np.minimum.reduceat(types, starts) != np.maximum.reduceat(types, starts)):
        tokens = np.arange(starts[word], ends[word])
        winner = _vote(types[tokens], scores[tokens])
        voters = tokens[types[tokens] == winner]
        begin_labels[word], end_labels[word] = labels[voters[0]], labels[voters[-1]]
        totals[word], counts[word] = scores[voters].sum(), len(voters)
    return WordLabels(begin_labels, end_labels, totals, counts)


def _vote(types: Integers, scores: npt.NDArray[np.float64]) -> int:
    """Return the type with the highest sum of scores, the first of equals; tokens of no entity do not vote."""
    votes: dict[int, float] = {}
    for kind, score in zip(types.tolist(), scores.tolist(), strict=True):
        if kind >= 0:
            votes[kind] = votes.get(kind, 0.0) + score
    return max(votes, key=votes.__getitem__)
