"""How one request's texts are fitted to the model: window settings, limits in tokens, and the errors for long texts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from functions.classify.options import Windows
from functions.engines.batching import length_guard
from host.errors import InputTooLong, InvalidRequest

ITEMS_MAX = 65_536
"""Sequences that one request may have computed: texts times labels times windows."""
WINDOWS_MAX = 1024
"""Windows of one text."""
HINT = "shorten it, send windows: mean to have all of it read in windows, or truncate: true to have its beginning read"
_IN_PARTS = "send it in parts"


class ReadOptions(msgspec.Struct, kw_only=True, frozen=True):
    """A request's settings for texts that may be longer than the model takes. Lengths are in tokens."""

    name: str
    """The request field that holds the texts, for messages."""
    params: Sequence[str]
    """The path of each text or pair in the request: `input`, or `texts[3]`."""
    windows: Windows
    max_length: int
    """Tokens of one sequence, special ones included."""
    length_param: str
    """The field to name in an error where `max_length` leaves no room for text."""
    overlap: float
    """The share of a window that the next one repeats."""
    hint: str = HINT
    """What the client can do about a text that does not fit."""

    def text_tokens(self, reserved: int, param: str | None = None) -> int:
        """Return how many tokens of a text fit into one sequence beside `reserved` others.

        Raises `InvalidRequest` naming `param`, by default the field that set the limit.
        """
        if self.max_length <= reserved:
            param = param or self.length_param
            raise InvalidRequest(f"{param} {no_room_message(reserved, self.max_length)}", param=param)
        return self.max_length - reserved

    def overlap_tokens(self, room: int) -> int:
        """Return how many tokens neighbouring windows of `room` tokens share."""
        return int(room * self.overlap)

    def max_text_tokens(self, room: int) -> int:
        """Return how many tokens of a text `WINDOWS_MAX` windows of `room` tokens cover."""
        return room + (WINDOWS_MAX - 1) * (room - self.overlap_tokens(room))

    def tokens_needed(self, room: int) -> int:
        """Return how many tokens of a text to tokenise: what lies beyond is cut or refused anyway."""
        return room if self.windows in ("first", "off") else self.max_text_tokens(room)

    def pre_truncate(self, text: str, param: str) -> str:
        """Cut a text that is far too long before it is tokenised; raises `InputTooLong` where it may not be cut."""
        if self.windows == "first":
            return length_guard.head(text, self.max_length)
        if self.windows == "off":
            length_guard.check(text, self.max_length, param, self.hint)
        else:
            length_guard.check(text, self.max_text_tokens(self.max_length), param, _IN_PARTS)
        return text

    def too_long(self, param: str, has: str, room: int) -> InputTooLong:
        """Return the error for a text that does not fit into one sequence."""
        return InputTooLong(f"{param} is too large: it has {has}, {room} are read at once; {self.hint}", param=param)

    def too_many_windows(self, param: str, has: str, room: int) -> InputTooLong:
        """Return the error for a text that needs more than `WINDOWS_MAX` windows."""
        return InputTooLong(
            f"{param} is too large: it has {has}, and {self.max_text_tokens(room)} are read in windows at most; "
            f"{_IN_PARTS}",
            param=param,
        )

    def check_count(self, items: int, description: str) -> None:
        """Raise `InvalidRequest` where a request needs more than `ITEMS_MAX` sequences."""
        if items > ITEMS_MAX:
            raise InvalidRequest(
                f"{self.name} is too much for one request: {description}, and {ITEMS_MAX} inputs are computed at "
                "most; send fewer texts at once",
                param=self.name,
            )


def pair_too_long(param: str, has: str, room: int, max_shorter: int) -> InputTooLong:
    """Return the error for a pair whose shorter text leaves no room for windows over the longer one."""
    return InputTooLong(
        f"{param} is too large: it has {has}, {room} are read at once, and the shorter text, which stands whole beside "
        f"each window of the other, may have {max_shorter}; shorten it, or send truncate: true to have the beginnings "
        "read",
        param=param,
    )


def no_room_message(reserved: int, max_length: int) -> str:
    """Return the message for `reserved` tokens that fill all of `max_length`."""
    return f"leaves no room for a text: {reserved} tokens stand around it, and {max_length} are taken in all"
