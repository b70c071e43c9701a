"""How a request wants its texts read, what bounds that, and the sentences for texts that are too much.

It knows lengths and names of fields; tokens and what the numbers mean are others' business.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from functions.classify.options import Windows
from functions.engines.batching import length_guard
from host.errors import InputTooLong, InvalidRequest

ITEMS_MAX = 65_536
"""Inputs that one request may have computed: texts times labels times windows."""
WINDOWS_MAX = 1024
"""Windows of one text."""
HINT = "shorten it, send windows: mean to have all of it read in windows, or truncate: true to have its beginning read"
_IN_PARTS = "send it in parts"


class ReadOptions(msgspec.Struct, kw_only=True, frozen=True):
    """How a request wants its texts read."""

    name: str
    """The field that holds them, for messages."""
    places: Sequence[str]
    """What each text or pair is called in the request: `input`, or `texts[3]`."""
    how: Windows
    limit: int
    """Tokens computed at once, special ones included."""
    limited: str
    """The field to blame where the limit leaves no room."""
    overlap: float
    """The share of a window that the next one reads again."""
    hint: str = HINT
    """What to do about a text that is too long to be read at once."""

    def room(self, taken: int, blamed: str | None = None) -> int:
        """Return how many tokens of a text one item holds beside `taken` others.

        Raises `InvalidRequest` for the field `blamed`, or the one that set the limit.
        """
        if self.limit <= taken:
            param = blamed or self.limited
            raise InvalidRequest(f"{param} {no_room(taken, self.limit)}", param=param)
        return self.limit - taken

    def shared(self, room: int) -> int:
        """Return how many tokens two neighbouring windows of so many have in common."""
        return int(room * self.overlap)

    def most(self, room: int) -> int:
        """Return how many tokens of a text are read in windows at most."""
        return room + (WINDOWS_MAX - 1) * (room - self.shared(room))

    def enough(self, room: int) -> int:
        """Return how many tokens of a text can matter: more than these are cut or refused."""
        return room if self.how in ("first", "off") else self.most(room)

    def shortened(self, text: str, place: str) -> str:
        """Return a text without what is over-long by far; raises `InputTooLong` where it may not be cut.

        Megabytes of text would else be tokenised only to be cut or refused.
        """
        if self.how == "first":
            return length_guard.head(text, self.limit)
        if self.how == "off":
            length_guard.check(text, self.limit, place, self.hint)
        else:
            length_guard.check(text, self.most(self.limit), place, _IN_PARTS)
        return text

    def too_long(self, place: str, has: str, room: int) -> InputTooLong:
        """Return the error for a text that is to be read at once."""
        return InputTooLong(f"{place} is too large: it has {has}, {room} are read at once; {self.hint}", param=place)

    def too_many(self, place: str, has: str, room: int) -> InputTooLong:
        """Return the error for a text of too many windows."""
        return InputTooLong(
            f"{place} is too large: it has {has}, and {self.most(room)} are read in windows at most; {_IN_PARTS}",
            param=place,
        )

    def check_count(self, items: int, what: str) -> None:
        """Raise `InvalidRequest` where `what` is more than one request may have computed."""
        if items > ITEMS_MAX:
            raise InvalidRequest(
                f"{self.name} is too much for one request: {what}, and {ITEMS_MAX} inputs are computed at most; "
                "send fewer texts at once",
                param=self.name,
            )


def too_long_pair(place: str, has: str, room: int, most: int) -> InputTooLong:
    """Return the error for a pair of which the shorter text leaves no room to read the longer one in windows."""
    return InputTooLong(
        f"{place} is too large: it has {has}, {room} are read at once, and the shorter text, which stands whole beside "
        f"each window of the other, may have {most}; shorten it, or send truncate: true to have the beginnings read",
        param=place,
    )


def no_room(taken: int, limit: int) -> str:
    """Return what to say of a field that takes as many tokens as there are, or of a limit that is no more."""
    return f"leaves no room for a text: {taken} tokens stand around it, and {limit} are taken in all"
