"""Rejects texts that are far too long for a model by their characters, before tokenising megabytes takes seconds.

White space does not count, since many tokenizers drop it."""

from __future__ import annotations

from host.errors import InputTooLong

PER_TOKEN = 64
"""Most characters per token, averaged over a text; real texts have 1 to 10."""

_STEP = 1 << 16
"""Least characters examined per step."""


def too_long(text: str, tokens: int) -> bool:
    """Return whether a text has more characters, white space left out, than so many tokens can stand for."""
    return _end(text, PER_TOKEN * tokens) is not None


def head(text: str, tokens: int) -> str:
    """Return the start of a text that surely fills so many tokens: all of it where it is not `too_long`."""
    return text[: _end(text, PER_TOKEN * tokens)]


def check(text: str, tokens: int, place: str, hint: str = "shorten it") -> None:
    """Raise `InputTooLong` for a text that is `too_long`; `place` is the field that holds it."""
    if too_long(text, tokens):
        raise InputTooLong(
            f"{place} is too large: it has more than {PER_TOKEN * tokens} characters, the model takes {tokens} tokens; "
            f"{hint}",
            param=place,
        )


def _end(text: str, most: int) -> int | None:
    """Return the end of the text's first `most` characters that are no white space; None where there are no more."""
    if len(text) <= most:
        return None
    begin, seen = 0, 0
    while begin < len(text):
        step = max(most - seen, _STEP)
        found = _solid(text[begin : begin + step])
        if seen + found > most:
            return begin + _place(text[begin : begin + step], most - seen)
        begin, seen = begin + step, seen + found
    return None


def _solid(text: str) -> int:
    return sum(map(len, text.split()))


def _place(text: str, count: int) -> int:
    """Return the end of the first `count` characters that are no white space, halving what is left to look at."""
    low, high = count, len(text)
    while low < high:
        middle = (low + high) // 2
        if _solid(text[:middle]) < count:
            low = middle + 1
        else:
            high = middle
    return low
