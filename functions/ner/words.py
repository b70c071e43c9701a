"""Groups tokens into words, which are never split between entities or windows.

A word is what WordPiece tokenizers take for one, whatever the model's tokenizer: letters, digits and marks up to white
space, punctuation, a pictograph, or a letter of a script that is written without spaces.
"""

from __future__ import annotations

import functools
import unicodedata
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from functions.engines.batching.item import Encoding
from functions.engines.batching.text_boundaries import JOINER, extends, trimmed

Places = npt.NDArray[np.int64]
Rule = Literal["auto", "spaces"]

_UNSPACED = (
    *((0x0E00, 0x0EFF), (0x0F00, 0x0FFF), (0x1000, 0x109F), (0x1780, 0x17FF)),  # Thai, Lao, Tibetan, Burmese, Khmer
    *((0x3040, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F)),  # kana
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),  # Han
)
_UNSEEN = frozenset("\u00ad\u061c\u180e\u200b\u200e\u200f\u2060\ufeff").union(
    *(map(chr, range(first, last + 1)) for first, last in ((0x202A, 0x202E), (0x2061, 0x2064), (0x2066, 0x206F)))
)
"""Invisible characters (direction marks, break opportunities, byte order mark): part of a word inside it only."""
_FLAGS = range(0x1F1E6, 0x1F200)


class Words(msgspec.Struct, frozen=True):
    """The words of a text's tokens, in order."""

    starts: Places
    """The first token of each word."""
    char_spans: list[tuple[int, int]]
    """First character of each word and the one after its last; equal for words of white space only."""

    def __len__(self) -> int:
        return len(self.starts)


def words(text: str, encoding: Encoding, rule: Rule = "auto") -> Words:
    """Return the words of a text's tokens."""
    starts: list[int] = []
    char_spans: list[tuple[int, int]] = []
    spans, ids = encoding.spans.tolist(), encoding.words.tolist()
    for at, span in enumerate(spans):
        begin, end = trimmed(text, *span)
        if at and _continues(text, char_spans[-1], (begin, end), ids[at - 1] == ids[at], rule):
            first, last = char_spans[-1]
            char_spans[-1] = (begin, end) if first == last else (first, max(last, end))
        else:
            starts.append(at)
            char_spans.append((begin, end))
    return Words(np.array(starts, dtype=np.int64), [_extend(text, place) for place in char_spans])


def _continues(text: str, word: tuple[int, int], token: tuple[int, int], same: bool, rule: Rule) -> bool:
    """Return whether a token continues the word before it; `same` is whether the tokenizer has both in one word."""
    (first, last), (begin, end) = word, token
    if begin == end:
        return False
    if first == last:  # a token for a space alone, where the tokenizer could not merge it with the word
        return same and begin <= last + 1 and not text[last:begin].strip()
    if begin < last:  # one character of several tokens
        return True
    between = text[last:begin]
    if between and any(map(str.isspace, between)):
        return False
    after = text[begin]
    if extends(after) or text[begin - 1] == JOINER:
        return True
    before = _base(text, first, last)
    if ord(before) in _FLAGS and ord(after) in _FLAGS:
        return True
    return rule == "spaces" or not (_stands_alone(before) or _stands_alone(after))


def _base(text: str, first: int, last: int) -> str:
    """Return the last character of a word that is not a combining one."""
    while last - 1 > first and extends(text[last - 1]):
        last -= 1
    return text[last - 1]


def _extend(text: str, place: tuple[int, int]) -> tuple[int, int]:
    """Extend a span by combining marks, which normalisation strips from the token, and trim what is not seen.

    Invisible characters and white space alternate: a token may end in a line break with a soft hyphen behind it.
    """
    begin, end = place
    while begin < end < len(text) and extends(text[end]):
        end += 1
    while begin < end and _unseen(text[end - 1]):
        end -= 1
    while begin < end and _unseen(text[begin]):
        begin += 1
    return begin, end


def _unseen(char: str) -> bool:
    return char in _UNSEEN or char.isspace()


@functools.lru_cache(maxsize=4096)
def _stands_alone(char: str) -> bool:
    """Return whether a character is a word of its own."""
    code = ord(char)
    if code < 128:
        return not (char.isalnum() or code < 32)
    kind = unicodedata.category(char)
    if kind == "So" or kind[0] == "P":
        return True
    return any(first <= code <= last for first, last in _UNSPACED)
