"""Words with labels made entities: which neighbours are one, where it stands, how sure it is. It knows no tokens."""

from __future__ import annotations

import msgspec
import numpy as np

from functions.ner.strategies import Verdicts
from functions.ner.tags import Tags
from functions.ner.words import Words


class Span(msgspec.Struct):
    """An entity in the making: its type's place among the names, first and last word, scores summed and how many."""

    type: int
    first: int
    last: int
    total: float
    count: int
    closed: bool

    @property
    def score(self) -> float:
        """The mean."""
        return min(1.0, self.total / self.count)


def spans(verdicts: Verdicts, words: Words, tags: Tags, *, join: bool = False) -> list[Span]:
    """Return the entities in order.

    Neighbouring words of one type are one entity, unless a label says that one begins or ended: no label is illegal, I
    or E without a B before it begins one. With `join`, words that touch are one whatever their labels say.
    """
    found: list[Span] = []
    types = tags.types[verdicts.opens]
    for word in np.flatnonzero(types >= 0).tolist():
        kind, opens = int(types[word]), int(verdicts.opens[word])
        total, count = float(verdicts.totals[word]), int(verdicts.counts[word])
        closed = tags.ends[int(verdicts.closes[word])]
        last = found[-1] if found else None
        if last is not None and last.type == kind and last.last == word - 1:
            anew = last.closed or tags.begins[opens]
            if not anew or (join and words.places[word - 1][1] == words.places[word][0]):
                last.last, last.closed = word, closed
                last.total += total
                last.count += count
                continue
        found.append(Span(kind, word, word, total, count, closed))
    return found


def place(span: Span, words: Words) -> tuple[int, int] | None:
    """Return first character and the one behind the last; None for an entity of white space only."""
    shown = [words.places[at] for at in range(span.first, span.last + 1)]
    filled = [(begin, end) for begin, end in shown if begin < end]
    return (filled[0][0], filled[-1][1]) if filled else None
