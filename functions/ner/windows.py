"""A long text's tokens as windows that overlap and begin and end between words, and their logits put together again.

Nothing is found twice or lost at a seam: entities are looked for when there is one row of logits for each token again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from functions.ner.strategies import Floats, Integers

Window = tuple[int, int]
"""First token and the one behind the last."""


def windows(starts: Integers, count: int, room: int, overlap: int) -> list[Window]:
    """Return windows of at most `room` of `count` tokens, each `overlap` tokens or more before the end of the last.

    `starts` are the first tokens of words. A window begins and ends between words, except in a word that would leave it
    less than half of its room.
    """
    borders = starts.tolist()
    found: list[Window] = []
    begin = 0
    while True:
        end = begin + room
        if end >= count:
            return [*found, (begin, count)]
        least = begin + overlap + max(1, (room - overlap) // 2)
        end = _border(borders, end, least)
        found.append((begin, end))
        begin = _border(borders, end - overlap, max(begin + 1, end - overlap - (room - overlap) // 4))


def _border(borders: list[int], wanted: int, least: int) -> int:
    """Return the last border up to `wanted`, or that itself where the last one is before `least`."""
    border = borders[bisect_right(borders, wanted) - 1]
    return border if border >= least else wanted


def stitched(
    parts: Sequence[Floats], cut: Sequence[Window], starts: Integers, outside: npt.NDArray[np.bool_]
) -> Floats:
    """Return one row of logits for each token, (tokens, labels).

    Where two windows overlap, the tokens before the seam are of the first and those behind it of the second. The seam
    is the border of words nearest to the middle, where both windows see as much on either side, that lies in no entity
    by both windows' opinion; where there is none, the nearest. `outside` tells which labels are of no entity.
    """
    if len(parts) == 1:
        return parts[0]
    borders = starts.tolist()
    free = [outside[part.argmax(axis=1)] for part in parts]
    rows: list[Floats] = []
    begin = 0
    for at, (first, last) in enumerate(cut):
        end = last
        if at + 1 < len(cut):
            end = _seam(cut[at], cut[at + 1], (free[at], free[at + 1]), borders, begin)
        rows.append(parts[at][begin - first : end - first])
        begin = end
    return np.concatenate(rows)


def _seam(
    one: Window,
    other: Window,
    free: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]],
    borders: list[int],
    least: int,
) -> int:
    """Return the first token that is taken from the second of two windows; at least `least`."""
    low, high = max(other[0], least), one[1]
    middle = (other[0] + high) // 2
    near = sorted(borders[bisect_left(borders, low) : bisect_right(borders, high)], key=lambda at: abs(at - middle))
    for border in near:
        if _quiet(border, one[0], free[0]) and _quiet(border, other[0], free[1]):
            return border
    return near[0] if near else max(middle, low)


def _quiet(border: int, first: int, free: npt.NDArray[np.bool_]) -> bool:
    """Say whether a window that begins at the token `first` has no entity across the border."""
    at = border - first
    return at <= 0 or at >= len(free) or bool(free[at - 1] or free[at])
