"""Texts and pairs as items to compute: tokenised, cut, counted, and only then made.

It knows tokens and special tokens; what the numbers mean that come back is the caller's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from functions.classify import truncation
from functions.classify.inputs import Input, Pair
from functions.classify.read_options import ReadOptions
from functions.classify.truncation import Cut
from functions.engines.batching.chunked_tokenizer import ChunkedTokenizer, Tokens
from functions.engines.batching.classifier import TextTokenizer
from functions.engines.batching.item import Ids, Item, PairFrame

_BREATH = 512
"""Items counted or made before other work of the event loop gets its turn: a few milliseconds."""


class Passage(msgspec.Struct, kw_only=True, frozen=True):
    """One text, a pair, or a text with a hypothesis, as items."""

    items: list[Item]
    tokens: list[int]
    """Of the text in each item; of a pair, of the text that is read in windows."""
    truncated: bool
    pair: bool
    """Whether its items are of two texts."""


class TextReader:
    """Makes passages for one model; `pair` is what stands around two texts."""

    def __init__(self, tokenizer: TextTokenizer, pair: PairFrame) -> None:
        self._reader = ChunkedTokenizer(tokenizer)
        self._prefix = np.array(tokenizer.prefix, dtype=np.int32)
        self._suffix = np.array(tokenizer.suffix, dtype=np.int32)
        self._extra = len(self._prefix) + len(self._suffix)
        self._pair = pair

    async def whole(self, given: Sequence[Input], reading: ReadOptions) -> list[Passage]:
        """Return each text or pair as the model's input; raises `InvalidRequest`, `InputTooLong` naming its index."""
        room = reading.room(self._extra)
        if any(isinstance(one, Pair) for one in given):
            reading.room(self._pair.extra + 1)
        read = iter(await self._read(list(_flat(given, reading.places)), room, reading))
        count = _Count(reading)
        parts: list[tuple[Tokens, Tokens | None, Cut]] = []
        for one, place in zip(given, reading.places, strict=True):
            first, second = next(read), next(read) if isinstance(one, Pair) else None
            if second is None:
                cut = truncation.single(first, room, place, reading)
            else:
                cut = truncation.both(first, second, reading.limit - self._pair.extra, place, reading)
            parts.append((first, second, cut))
            await count.add(len(cut.spans))
        found: list[Passage] = []
        for first, second, cut in parts:
            found.append(self._passage(cut, first.ids, None if second is None else second.ids))
            await count.made(len(cut.spans))
        return found

    async def paired(
        self, texts: Sequence[str], seconds: Sequence[str], reading: ReadOptions, blamed: str
    ) -> list[list[Passage]]:
        """Return each text with each of the second texts, which are never cut and come from the field `blamed`.

        Raises like `whole`. Windows are the same for every second text; a beginning is as long as each leaves room
        for, as Transformers' zero-shot pipeline has it.
        """
        reading.check_count(len(texts) * len(seconds), f"{len(texts)} texts with {len(seconds)} labels")
        behind = [tokens.ids for tokens in await self._reader.read(seconds, reading.limit)]
        taken = [len(ids) if reading.how == "first" else max(map(len, behind)) for ids in behind]
        rooms = [reading.room(self._pair.extra + count, blamed) for count in taken]
        read = await self._read(list(zip(texts, reading.places, strict=True)), max(rooms), reading)
        count, often = _Count(reading), Counter(rooms)
        table: list[dict[int, Cut]] = []
        for tokens, place in zip(read, reading.places, strict=True):
            table.append({room: truncation.single(tokens, room, place, reading) for room in often})
            await count.add(sum(len(cut.spans) * often[room] for room, cut in table[-1].items()))
        found: list[list[Passage]] = []
        for tokens, row in zip(read, table, strict=True):
            found.append([])
            for second, room in zip(behind, rooms, strict=True):
                found[-1].append(self._beside(row[room], tokens.ids, second))
                await count.made(len(row[room].spans))
        return found

    async def _read(self, texts: Sequence[tuple[str, str]], room: int, reading: ReadOptions) -> list[Tokens]:
        """Return the tokens of texts that come with their places, as many as can matter."""
        kept = [reading.shortened(text, place) for text, place in texts]
        found = await self._reader.read(kept, reading.enough(room))
        return [
            tokens if len(start) == len(text) else msgspec.structs.replace(tokens, whole=False)
            for tokens, start, (text, _) in zip(found, kept, texts, strict=True)
        ]

    def _passage(self, cut: Cut, first: Ids, second: Ids | None = None) -> Passage:
        if second is None:
            items = [Item(ids=np.concatenate([self._prefix, first[a:b], self._suffix])) for (a, b), _ in cut.spans]
        else:
            items = [self._pair.item(first[a:b], second[c:d]) for (a, b), (c, d) in cut.spans]
        return Passage(items=items, tokens=cut.tokens, truncated=cut.truncated, pair=second is not None)

    def _beside(self, cut: Cut, first: Ids, second: Ids) -> Passage:
        """Return each part of the first text with the whole of the second one."""
        items = [self._pair.item(first[a:b], second) for (a, b), _ in cut.spans]
        return Passage(items=items, tokens=cut.tokens, truncated=cut.truncated, pair=True)


class _Count:
    """Counts what a request is to have computed; the event loop's other work has its turn now and then."""

    def __init__(self, reading: ReadOptions) -> None:
        self._reading = reading
        self._sum = 0
        self._since = 0

    async def add(self, items: int) -> None:
        """Count items that are to be made; raises `InvalidRequest` once they are too many."""
        self._sum += items
        self._reading.check_count(self._sum, f"at least {self._sum} windows")
        await self.made(items)

    async def made(self, items: int) -> None:
        """Give way where enough was done since the last time."""
        self._since += items
        if self._since >= _BREATH:
            self._since = 0
            await asyncio.sleep(0)


def _flat(given: Sequence[Input], places: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield every text with its place, those of a pair after each other."""
    for one, place in zip(given, places, strict=True):
        if isinstance(one, Pair):
            yield from ((text, f"{place}.{name}") for text, name in zip(one, Pair._fields, strict=True))
        else:
            yield one, place
