"""Where the tokens of a text or a pair are cut into inputs: nowhere, in windows, behind the beginning; or refused.

It knows counts of tokens; items and what the numbers mean that come back are others' business.
"""

from __future__ import annotations

import msgspec

from functions.classify import pair_truncation
from functions.classify.inputs import Pair
from functions.classify.pair_truncation import Span
from functions.classify.read_options import ReadOptions, too_long_pair
from functions.engines.batching.chunked_tokenizer import Tokens
from functions.engines.batching.windows import windows
from host.errors import InvalidRequest

_NONE = (0, 0)


class Cut(msgspec.Struct, frozen=True):
    """The spans of a text, or of both texts of a pair, in each input."""

    spans: list[tuple[Span, Span]]
    """The second one is empty where there is one text."""
    truncated: bool
    """Whether the end is left out."""
    longer: int = 0
    """Which of two texts is the longer one, the one that is read in windows."""

    @property
    def tokens(self) -> list[int]:
        """How many tokens each input has of the text that is read in windows."""
        return [span[self.longer][1] - span[self.longer][0] for span in self.spans]


def single(tokens: Tokens, room: int, place: str, reading: ReadOptions) -> Cut:
    """Return where a text is cut; raises `InputTooLong` where it may not be, or into too many."""
    _check_some(tokens, place)
    count = len(tokens.ids)
    if count <= room and tokens.whole:
        return Cut([((0, count), _NONE)], truncated=False)
    if reading.how == "first":
        return Cut([((0, min(count, room)), _NONE)], truncated=True)
    told = f"{_told(tokens)} tokens"
    if reading.how == "off":
        raise reading.too_long(place, told, room)
    if count > reading.most(room) or not tokens.whole:
        raise reading.too_many(place, told, room)
    return Cut([(span, _NONE) for span in windows(count, room, reading.shared(room))], truncated=False)


def both(first: Tokens, second: Tokens, room: int, place: str, reading: ReadOptions) -> Cut:
    """Return what `single` returns, for the texts of a pair."""
    for name, tokens in zip(Pair._fields, (first, second), strict=True):
        _check_some(tokens, f"{place}.{name}")
    one, two = len(first.ids), len(second.ids)
    longer, whole = int(one < two), first.whole and second.whole
    if whole and one + two <= room:
        return Cut([((0, one), (0, two))], truncated=False, longer=longer)
    if reading.how == "first":
        one, two = pair_truncation.beginnings(one, two, room)
        return Cut([((0, one), (0, two))], truncated=True, longer=longer)
    told = f"{_told(first)} and {_told(second)} tokens"
    if reading.how == "off":
        raise reading.too_long(place, told, room)
    most = pair_truncation.shorter_most(room)
    if min(one, two) > most:
        raise too_long_pair(place, told, room, most)
    left = room - min(one, two)
    if max(one, two) > reading.most(left) or not whole:
        raise reading.too_many(place, told, left)
    return Cut(pair_truncation.windowed(one, two, room, reading.overlap), truncated=False, longer=longer)


def _told(tokens: Tokens) -> str:
    return f"{len(tokens.ids)}" if tokens.whole else f"more than {len(tokens.ids)}"


def _check_some(tokens: Tokens, place: str) -> None:
    if not len(tokens.ids):
        raise InvalidRequest(f"{place} has no tokens for this model", param=place)
