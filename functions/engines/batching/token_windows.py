"""Splits inputs that are longer than the model's limit into overlapping windows (stride in Transformers)."""

from __future__ import annotations


def windows(count: int, room: int, overlap: int = 0) -> list[tuple[int, int]]:
    """Return first token and end of each window over `count` tokens, in order; at least one window.

    A window has at most `room` tokens and begins `overlap` tokens before the end of the one before it. `room` is at
    least 1, and `overlap` less than it.
    """
    found = [(0, min(room, count))]
    while found[-1][1] < count:
        begin = found[-1][1] - overlap
        found.append((begin, min(begin + room, count)))
    return found
