"""Texts as items to compute: whole where they fit, else in windows, at their beginning only, or refused.

It knows tokens and lengths; what the numbers mean that come back is the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from functions.classify.options import Windows
from functions.engines.batching import brevity
from functions.engines.batching.headed import TextTokenizer
from functions.engines.batching.item import Ids, Item
from functions.engines.batching.windows import windows
from host.errors import InputTooLong, InvalidRequest

ITEMS_MAX = 65_536
"""Inputs that one request may have computed: texts times labels times windows."""
_WINDOWS_MAX = 1024
"""Windows of one text."""
_BREATH = 512
"""Items made before other work of the event loop gets its turn: a few milliseconds."""
_HINT = "shorten it, send windows: mean to have all of it read in windows, or truncate: true to have its beginning read"


class Reading(msgspec.Struct, kw_only=True, frozen=True):
    """How a request wants its texts read."""

    name: str
    """The field that holds them, for messages."""
    how: Windows
    limit: int
    """Tokens computed at once, special ones included."""
    overlap: float
    """The share of a window that the next one reads again."""


class Passage(msgspec.Struct, kw_only=True, frozen=True):
    """One text, or one with a hypothesis, as items."""

    items: list[Item]
    tokens: list[int]
    """Of the text in each item."""
    truncated: bool


class Passages:
    """Makes passages for one model."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer

    async def whole(self, texts: Sequence[str], reading: Reading) -> list[Passage]:
        """Return each text as the model's input; raises `InvalidRequest` and `InputTooLong` that name its index."""
        prefix, suffix = self._tokenizer.prefix, self._tokenizer.suffix
        room = _room(reading, len(prefix) + len(suffix), "max_length")
        found: list[Passage] = []
        kept = _shortened(texts, reading)
        for at, ids in enumerate(await self._tokenizer.encode(kept)):
            bare = ids[len(prefix) : len(ids) - len(suffix)]
            spans, truncated = _spans(len(bare), room, _place(reading, at, len(texts)), reading)
            truncated = truncated or len(kept[at]) < len(texts[at])
            framed = (
                [ids]
                if len(spans) == 1 and not truncated
                else [self._tokenizer.frame(bare[a:b].tolist()) for a, b in spans]
            )
            items = [Item(ids=part) for part in framed]
            found.append(Passage(items=items, tokens=[b - a for a, b in spans], truncated=truncated))
            if at % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
        return _checked(found, reading)

    async def paired(self, texts: Sequence[str], seconds: Sequence[Ids], reading: Reading) -> list[list[Passage]]:
        """Return each text with each of the second texts, whose tokens are never cut; raises like `whole`.

        Windows are the same for every second text. A beginning is as long as each leaves room for, as Transformers'
        zero-shot pipeline has it.
        """
        if len(texts) * len(seconds) > ITEMS_MAX:
            raise _too_many(f"{len(texts)} texts with {len(seconds)} labels", reading)
        pair = self._tokenizer.pair
        longest = max(map(len, seconds))
        rooms = [
            _room(reading, pair.extra + (len(ids) if reading.how == "first" else longest), "labels") for ids in seconds
        ]
        found: list[list[Passage]] = []
        made = 0
        kept = _shortened(texts, reading)
        for at, pieces in enumerate(await self._tokenizer.pieces(kept)):
            row: list[Passage] = []
            place = _place(reading, at, len(texts))
            for second, room in zip(seconds, rooms, strict=True):
                spans, truncated = _spans(len(pieces.ids), room, place, reading)
                truncated = truncated or len(kept[at]) < len(texts[at])
                items = [pair.item(pieces.ids[a:b], second) for a, b in spans]
                row.append(Passage(items=items, tokens=[b - a for a, b in spans], truncated=truncated))
                made += len(items)
                if made >= _BREATH:
                    made = 0
                    await asyncio.sleep(0)
            found.append(row)
        _checked([passage for row in found for passage in row], reading)
        return found


def _room(reading: Reading, taken: int, blamed: str) -> int:
    """Return how many tokens of a text one item holds beside what is not of it."""
    room = reading.limit - taken
    if room < 1:
        raise InvalidRequest(
            f"{blamed} leaves no room for a text: {taken} tokens stand around it, and {reading.limit} are taken in all",
            param=blamed,
        )
    return room


def _spans(count: int, room: int, place: str, reading: Reading) -> tuple[list[tuple[int, int]], bool]:
    """Return the first token and the end of each part of a text to read, and whether its end is left out."""
    if not count:
        raise InvalidRequest(f"{place} has no tokens for this model", param=place)
    if count <= room:
        return [(0, count)], False
    if reading.how == "first":
        return [(0, room)], True
    if reading.how == "off":
        raise _too_long(place, f"{count} tokens", room)
    spans = windows(count, room, int(room * reading.overlap))
    if len(spans) > _WINDOWS_MAX:
        raise _too_long(place, f"{count} tokens", room, most=_WINDOWS_MAX * room)
    return spans, False


def _shortened(texts: Sequence[str], reading: Reading) -> list[str]:
    """Return the texts without what is over-long by far.

    Megabytes of text would else keep the tokenizer, and whoever waits for it, busy only to be cut or refused.
    """
    if reading.how == "first":
        return [brevity.head(text, reading.limit) for text in texts]
    for at, text in enumerate(texts):
        _check_brief(text, _place(reading, at, len(texts)), reading)
    return list(texts)


def _check_brief(text: str, place: str, reading: Reading) -> None:
    if reading.how == "off":
        brevity.check(text, reading.limit, place, _HINT)
        return
    most = reading.limit * _WINDOWS_MAX
    brevity.check(text, most, place, "send it in parts")
    # A word is a token at least.
    if len(text) >= 2 * most and len(text.split(maxsplit=most)) > most:
        raise _too_long(place, f"more than {most} tokens", reading.limit, most=most)


def _checked(found: list[Passage], reading: Reading) -> list[Passage]:
    """Return the passages; raises `InvalidRequest` where they are more than one request may have computed."""
    count = sum(len(passage.items) for passage in found)
    if count > ITEMS_MAX:
        raise _too_many(f"{count} windows", reading)
    return found


def _place(reading: Reading, at: int, count: int) -> str:
    return f"{reading.name}[{at}]" if count > 1 else reading.name


def _too_many(what: str, reading: Reading) -> InvalidRequest:
    return InvalidRequest(
        f"{reading.name} is too much for one request: {what}, and {ITEMS_MAX} inputs are computed at most; "
        "send fewer texts at once",
        param=reading.name,
    )


def _too_long(place: str, has: str, room: int, most: int | None = None) -> InputTooLong:
    if most is not None:
        return InputTooLong(
            f"{place} is too large: it has {has}, and {most} are read in windows at most; send it in parts", param=place
        )
    return InputTooLong(f"{place} is too large: it has {has}, {room} are read at once; {_HINT}", param=place)
