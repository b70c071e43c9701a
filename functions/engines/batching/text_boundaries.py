"""Unicode helpers for cutting texts: characters that extend the one before them, and spans without white space."""

from __future__ import annotations

import unicodedata

JOINER = "\u200d"
_REST = (
    *(range(0x1160, 0x1200), range(0xD7B0, 0xD800), range(0xFF9E, 0xFFA0)),
    *(range(0x1F3FB, 0x1F400), range(0xE0020, 0xE0080)),
)
"""Letters that NFC and NFKC make one with those before (vowels and ends of Hangul, voice of narrow kana); colours of
skin and the letters of a flag."""


def extends(char: str) -> bool:
    """Return whether a character extends the one before it: a mark, joiner, skin tone, or rest of a syllable."""
    if char < "\u0300":
        return False
    code = ord(char)
    if char == JOINER or any(code in kind for kind in _REST):
        return True
    return unicodedata.category(char)[0] == "M"


def trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    """Return the span without white space at its ends; an empty span keeps its start."""
    while end > begin and text[end - 1].isspace():
        end -= 1
    while begin < end and text[begin].isspace():
        begin += 1
    return begin, end
