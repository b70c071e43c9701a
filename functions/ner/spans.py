"""Groups labelled words into entities, with their character spans and scores."""

from __future__ import annotations

import msgspec
import numpy as np

from functions.ner.aggregation import WordLabels
from functions.ner.tags import TagScheme
from functions.ner.words import Words


class EntitySpan(msgspec.Struct):
    """An entity as a range of words."""

    type: int
    """Index of its type in `TagScheme.names`."""
    first: int
    """Its first word."""
    last: int
    """Its last word."""
    total: float
    """Sum of `count` scores."""
    count: int
    closed: bool
    """Whether the last word's label ends the entity."""

    @property
    def score(self) -> float:
        """The mean score, from 0 to 1."""
        return min(1.0, self.total / self.count)


def group_entities(labelled: WordLabels, words: Words, tags: TagScheme, *, join: bool = False) -> list[EntitySpan]:
    """Return the entities in order.

    Neighbouring words of one type are one entity unless a label begins or ends one between them; an I or E label
    without a B before it begins an entity. With `join`, words that touch are one entity whatever their labels.
    """
    found: list[EntitySpan] = []
    types = tags.types[labelled.begin_labels]
    for word in np.flatnonzero(types >= 0).tolist():
        kind, first_label = int(types[word]), int(labelled.begin_labels[word])
        total, count = float(labelled.totals[word]), int(labelled.counts[word])
        closed = tags.ends[int(labelled.end_labels[word])]
        last = found[-1] if found else None
        if last is not None and last.type == kind and last.last == word - 1:
            begins = last.closed or tags.begins[first_label]
            if not begins or (join and words.char_spans[word - 1][1] == words.char_spans[word][0]):
                last.last, last.closed = word, closed
                last.total += total
                last.count += count
                continue
        found.append(EntitySpan(kind, word, word, total, count, closed))
    return found


def char_span(span: EntitySpan, words: Words) -> tuple[int, int] | None:
    """Return the first character and the one after the last; None for an entity of white space only."""
    shown = [words.char_spans[at] for at in range(span.first, span.last + 1)]
    filled = [(begin, end) for begin, end in shown if begin < end]
    return (filled[0][0], filled[-1][1]) if filled else None
