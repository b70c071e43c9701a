"""Finds where a long text can be cut before tokenising without changing its tokens: mostly between words.

Which places those are differs between tokenizers, so each rule is tried on sample texts first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from functions.engines.batching.item import Encoding
from functions.engines.batching.text_boundaries import extends, trimmed

PART = 1 << 14
"""Characters of a part, which ends at the first place behind them; a text of no more is not cut."""
UNBROKEN = 1 << 16
"""Characters of a part at most. Where so many have no place between them, as in a picture written in letters, any place
will do, and the token there may be another one."""

Span = tuple[int, int]

_MARKS = ",;:!?)}+=&。，、！？；：」』）"  # noqa: RUF001
"""None that special tokens have inside or at their end, such as `</s>`, `<|end|>` and `[SEP]`: half of one would be
words, and what follows a whole one is read in a way of its own."""
_GAPS = ("\n", "\r\n", "\n\n", "\t", "  ", " \n ", "\u00a0", "\u3000", "\n\n\u3000\u3000")
_WHITE = r"[ \t\r\n\u00a0\u3000]"
"""White space of `_GAPS`. Some tokenizers drop other characters that Python calls so, a form feed in a word say."""
_WORDS = ("Clara", "de", "José", "U.S", "x@y.org", "12", "日本語", "im")
_PAIRS = (
    *((one, _WORDS[(at + step) % len(_WORDS)]) for at, one in enumerate(_WORDS) for step in (0, 1, 3)),
    *(("of", "the"), ("in", "a"), ("I", "am"), ("New", "York"), ("7", "a"), ("Über", "Äpfel"), ("не", "в")),
    *(("και", "το"), ("على", "في"), ("한국", "사람"), ("中", "文")),
)
"""Words that stand beside each other, also such as a tokenizer that merges words would merge."""
_VISIBLE = rf"(?<=[\w.{re.escape(_MARKS)}])"
"""Behind what no tokenizer takes for white space, as some do with what cannot be seen."""
_ANY = re.compile(r"(?<=\S)\s")


class SplitRule(msgspec.Struct, frozen=True):
    """One kind of place where texts may be cut."""

    pattern: str
    """Matches what is left out between two parts, which mostly is nothing."""
    samples: tuple[tuple[str, str, str], ...]
    """What stands between two words: before the place, left out at it, and behind it."""


_RULES = (
    SplitRule(_VISIBLE + r"(?= \w)", (("", "", " "),)),
    # Tokenizers that put a mark for a space before every text: they would see two.
    SplitRule(_VISIBLE + r" (?=\w)", (("", " ", ""),)),
    # White space of other kinds, all of it on the right. Not behind marks: some tokens are a mark and a line end.
    SplitRule(rf"(?<=[^\W_])(?! \w)(?={_WHITE}+\w)", tuple(("", "", gap) for gap in _GAPS)),
    SplitRule(rf"(?<=[{re.escape(_MARKS)}])(?=[^\W_])", tuple((mark, "", "") for mark in _MARKS)),
)
"""Where two are right at one place, the first one counts."""


class Sample(msgspec.Struct, frozen=True):
    """A text to tokenise in two parts, and whole."""

    rule: SplitRule
    first: str
    left_out: str
    second: str


def samples() -> list[Sample]:
    """Return sample texts for every rule, with words of many kinds around the cut."""
    return [
        Sample(rule, f"in {one}{before}", left_out, f"{behind}{other} on")
        for rule in _RULES
        for before, left_out, behind in rule.samples
        for one, other in _PAIRS
    ]


def texts(tried: Sequence[Sample]) -> list[str]:
    """Return what of the samples is to be tokenised: each one whole, its first part, and its second one."""
    return [text for one in tried for text in (one.first + one.left_out + one.second, one.first, one.second)]


def places(tried: Sequence[Sample], read: Sequence[Encoding]) -> re.Pattern[str] | None:
    """Return what finds the places where texts may be cut, given the tokens of `texts`; None where there are none."""
    parted = zip(tried, read[::3], read[1::3], read[2::3], strict=True)
    wrong = {sample.rule for sample, whole, one, other in parted if not _splits_cleanly(sample, whole, one, other)}
    good = [rule.pattern for rule in _RULES if rule not in wrong]
    return re.compile("|".join(good)) if good else None


def parts(text: str, place: re.Pattern[str] | None) -> Iterator[Span]:
    """Yield where the parts of a text begin and end, at places that `place` finds."""
    begin = 0
    while len(text) - begin > PART:
        end, then = _cut(text, begin, place)
        yield begin, end
        begin = then
    if begin < len(text) or not text:
        yield begin, len(text)


def _cut(text: str, begin: int, place: re.Pattern[str] | None) -> Span:
    """Return the end of the part that begins there, and the beginning of the next one."""
    least, most = begin + PART, begin + UNBROKEN
    if place is not None and (match := place.search(text, least, most)):
        return match.span()
    if most >= len(text):
        return len(text), len(text)
    if match := _ANY.search(text, least, most):
        return match.start(), match.start()
    while most > least and (extends(text[most]) or extends(text[most - 1])):
        most -= 1
    return most, most


def _splits_cleanly(sample: Sample, whole: Encoding, one: Encoding, other: Encoding) -> bool:
    """Return whether two parts have the tokens of the whole, with a word boundary between them.

    Without spans only the ids are compared.
    """
    first, count = sample.first + sample.left_out, len(one.ids)
    if not 0 < count < len(whole.ids) or not np.array_equal(whole.ids, np.concatenate([one.ids, other.ids])):
        return False
    if not len(whole.spans):
        return True
    text, spans = first + sample.second, np.concatenate([one.spans, other.spans + len(first)])
    found, wanted = ([_stripped_span(text, span) for span in each.tolist()] for each in (spans, whole.spans))
    behind = [*found[1:], None]
    same = all(a == b or (b is None and _begins(a, then)) for a, b, then in zip(found, wanted, behind, strict=True))
    return same and bool(whole.words[count - 1] != whole.words[count])


def _begins(token: Span | None, then: Span | None) -> bool:
    """Return whether a token starts where the next one does, as a stripped space marker does."""
    return token is not None and then is not None and token[0] == then[0]


def _stripped_span(text: str, span: Sequence[int]) -> Span | None:
    """Return a token's span without white space at its ends; None for white space only."""
    begin, end = trimmed(text, *span)
    return (begin, end) if begin < end else None
