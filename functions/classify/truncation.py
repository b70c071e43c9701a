"""Splits the tokens of a text or a pair into the spans of each sequence: whole, windows, the beginning, or an error."""

from __future__ import annotations

import msgspec

from functions.classify import pair_truncation
from functions.classify.inputs import Pair
from functions.classify.pair_truncation import Span
from functions.classify.read_options import ReadOptions, pair_too_long
from functions.engines.batching.chunked_tokenizer import Tokens
from functions.engines.batching.token_windows import windows
from host.errors import InvalidRequest

_NONE = (0, 0)


class InputSpans(msgspec.Struct, frozen=True):
    """Which tokens of a text, or of both texts of a pair, go into each sequence."""

    spans: list[tuple[Span, Span]]
    """The second span is empty for a single text."""
    truncated: bool
    """Whether the end of a text is left out."""
    longer: int = 0
    """Which text of a pair is the longer one, the one that is read in windows."""

    @property
    def tokens(self) -> list[int]:
        """Tokens of the windowed text in each sequence."""
        return [span[self.longer][1] - span[self.longer][0] for span in self.spans]


def split_text(tokens: Tokens, room: int, param: str, options: ReadOptions) -> InputSpans:
    """Split a text into spans of at most `room` tokens; raises `InputTooLong` and `InvalidRequest`, naming `param`."""
    _check_not_empty(tokens, param)
    count = len(tokens.ids)
    if count <= room and tokens.whole:
        return InputSpans([((0, count), _NONE)], truncated=False)
    if options.windows == "first":
        return InputSpans([((0, min(count, room)), _NONE)], truncated=True)
    has = f"{_count_text(tokens)} tokens"
    if options.windows == "off":
        raise options.too_long(param, has, room)
    if count > options.max_text_tokens(room) or not tokens.whole:
        raise options.too_many_windows(param, has, room)
    spans = windows(count, room, options.overlap_tokens(room))
    return InputSpans([(span, _NONE) for span in spans], truncated=False)


def split_pair(first: Tokens, second: Tokens, room: int, param: str, options: ReadOptions) -> InputSpans:
    """Split a pair like `split_text`: both texts of a sequence have at most `room` tokens together."""
    for name, tokens in zip(Pair._fields, (first, second), strict=True):
        _check_not_empty(tokens, f"{param}.{name}")
    one, two = len(first.ids), len(second.ids)
    longer, whole = int(one < two), first.whole and second.whole
    if whole and one + two <= room:
        return InputSpans([((0, one), (0, two))], truncated=False, longer=longer)
    if options.windows == "first":
        one, two = pair_truncation.longest_first(one, two, room)
        return InputSpans([((0, one), (0, two))], truncated=True, longer=longer)
    has = f"{_count_text(first)} and {_count_text(second)} tokens"
    if options.windows == "off":
        raise options.too_long(param, has, room)
    max_shorter = pair_truncation.max_shorter(room)
    if min(one, two) > max_shorter:
        raise pair_too_long(param, has, room, max_shorter)
    left = room - min(one, two)
    if max(one, two) > options.max_text_tokens(left) or not whole:
        raise options.too_many_windows(param, has, left)
    return InputSpans(pair_truncation.pair_windows(one, two, room, options.overlap), truncated=False, longer=longer)


def _count_text(tokens: Tokens) -> str:
    return f"{len(tokens.ids)}" if tokens.whole else f"more than {len(tokens.ids)}"


def _check_not_empty(tokens: Tokens, param: str) -> None:
    if not len(tokens.ids):
        raise InvalidRequest(f"{param} has no tokens for this model", param=param)
