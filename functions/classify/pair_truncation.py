"""Two texts that are read together: which tokens of each go into an input when both do not fit.

It knows counts of tokens; texts and models are others' business.
"""

from __future__ import annotations

from functions.engines.batching.windows import windows

Span = tuple[int, int]
"""First token and end."""

_LEAST = 4
"""A window of the longer text has at least this part of the room: less would say little of it."""


def beginnings(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of two texts are kept of `room`: the longer one is cut first, as Transformers does it.

    That is the `longest_first` of Hugging Face's tokenizers; an odd token goes to the longer text, or to the second.
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if first > second:
        return (room - second, second) if second <= half else (room - half, half)
    return (first, room - first) if first <= half else (half, room - half)


def shorter_most(room: int) -> int:
    """Return how long the shorter text of a pair may be where the longer one is read in windows."""
    return room - max(1, room // _LEAST)


def windowed(first: int, second: int, room: int, overlap: float) -> list[tuple[Span, Span]]:
    """Return the spans of both texts in each input: windows over the longer one, each beside the whole of the other.

    The shorter one has at most `shorter_most(room)` tokens.
    """
    if first + second <= room:
        return [((0, first), (0, second))]
    shorter, longer = sorted((first, second))
    left = room - shorter
    spans = windows(longer, left, int(left * overlap))
    if first >= second:
        return [(span, (0, second)) for span in spans]
    return [((0, first), span) for span in spans]
