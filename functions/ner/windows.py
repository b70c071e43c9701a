"""Splits a text's tokens into overlapping windows that end between words, and merges the windows' logits again.

Entities are found in the merged logits, one row for each token, so none is found twice or lost where windows meet.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from functions.ner.aggregation import Floats, Integers

Window = tuple[int, int]
"""The first token and the one after the last."""


def windows(starts: Integers, count: int, size: int, overlap: int) -> list[Window]:
    """Return windows of at most `size` of `count` tokens, each of which shares at least `overlap` with the one before.

    `starts` are the first tokens of words. A window begins and ends between words, except in a word that would leave it
    less than half of its size.
    """
    boundaries = starts.tolist()
    result: list[Window] = []
    begin = 0
    while True:
        end = begin + size
        if end >= count:
            return [*result, (begin, count)]
        least = begin + overlap + max(1, (size - overlap) // 2)
        end = _boundary(boundaries, end, least)
        result.append((begin, end))
        begin = _boundary(boundaries, end - overlap, max(begin + 1, end - overlap - (size - overlap) // 4))


def _boundary(boundaries: list[int], position: int, least: int) -> int:
    """Return the last word boundary up to `position`, or `position` where that boundary is before `least`."""
    boundary = boundaries[bisect_right(boundaries, position) - 1]
    return boundary if boundary >= least else position


def merge_windows(
    parts: Sequence[Floats], windows: Sequence[Window], starts: Integers, outside: npt.NDArray[np.bool_]
) -> Floats:
    """Return one row of logits for each token (tokens, labels), from those of each window (tokens, labels).

    Where two windows overlap, tokens before the merge point are of the first window, those after it of the second. It
    is the word boundary nearest to the middle of the overlap that lies in no entity by both windows' logits, or the
    nearest boundary where there is none such. `outside` (labels,) is true for labels that are of no entity.
    """
    if len(parts) == 1:
        return parts[0]
    boundaries = starts.tolist()
    free = [outside[part.argmax(axis=1)] for part in parts]
    rows: list[Floats] = []
    begin = 0
    for at, (first, last) in enumerate(windows):
        end = last
        if at + 1 < len(windows):
            end = _merge_point(windows[at], windows[at + 1], (free[at], free[at + 1]), boundaries, begin)
        rows.append(parts[at][begin - first : end - first])
        begin = end
    return np.concatenate(rows)


def _merge_point(
    one: Window,
    other: Window,
    free: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]],
    boundaries: list[int],
    least: int,
) -> int:
    """Return the first token that is taken from the second of two windows; at least `least`."""
    low, high = max(other[0], least), one[1]
    middle = (other[0] + high) // 2
    candidates = boundaries[bisect_left(boundaries, low) : bisect_right(boundaries, high)]
    nearest = sorted(candidates, key=lambda at: abs(at - middle))
    for boundary in nearest:
        if _outside_entities(boundary, one[0], free[0]) and _outside_entities(boundary, other[0], free[1]):
            return boundary
    return nearest[0] if nearest else max(middle, low)


def _outside_entities(boundary: int, first: int, free: npt.NDArray[np.bool_]) -> bool:
    """Return whether no entity spans the boundary, by the logits of the window that begins at the token `first`."""
    at = boundary - first
    return at <= 0 or at >= len(free) or bool(free[at - 1] or free[at])
