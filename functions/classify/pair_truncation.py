"""Truncates pairs of texts: which tokens of each go into a sequence when both do not fit. Lengths are in tokens."""

from __future__ import annotations

from functions.engines.batching.token_windows import windows

Span = tuple[int, int]
"""First token and end."""

_LEAST_SHARE = 4
"""A window of the longer text has at least 1/4 of the room, so that it holds enough of the text to be judged by."""


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens to keep of two texts so that they fit into `room`.

    This is `longest_first` of Hugging Face's tokenizers; an odd token goes to the longer text, or to the second.
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if first > second:
        return (room - second, second) if second <= half else (room - half, half)
    return (first, room - first) if first <= half else (half, room - half)


def max_shorter(room: int) -> int:
    """Return the longest that the shorter text of a pair may be where the longer one is read in windows."""
    return room - max(1, room // _LEAST_SHARE)


def pair_windows(first: int, second: int, room: int, overlap: float) -> list[tuple[Span, Span]]:
    """Return the spans of both texts in each sequence: windows over the longer one, each with the whole shorter one.

    `overlap` is the share of a window that the next repeats. The shorter text has at most `max_shorter(room)` tokens.
    """
    if first + second <= room:
        return [((0, first), (0, second))]
    shorter, longer = sorted((first, second))
    left = room - shorter
    spans = windows(longer, left, int(left * overlap))
    if first >= second:
        return [(span, (0, second)) for span in spans]
    return [((0, first), span) for span in spans]
