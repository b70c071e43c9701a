"""Texts of any length as tokens, in bounded steps: a long text in parts, many short ones in turns.

So megabytes take neither the memory of the tokenizer's own records nor the turn of whoever comes next. It knows texts
and a tokenizer, and no model.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

import numpy as np

from functions.engines.batching import split_points
from functions.engines.batching.item import Encoding, Ids

_TURN = 1 << 16
"""Characters that are tokenised before others have their turn."""


class Tokenizer(Protocol):
    """What is asked of a tokenizer here."""

    prefix: list[int]
    suffix: list[int]

    async def encode(self, texts: Sequence[str]) -> list[Ids]: ...  # noqa: D102
    async def pieces(self, texts: Sequence[str]) -> list[Encoding]: ...  # noqa: D102


class Tokens(Encoding, frozen=True):
    """A text's tokens without special ones; `spans` and `words` are empty where nobody asked for places."""

    whole: bool = True
    """Whether these are all: reading ends early once there are more than enough."""


class ChunkedTokenizer:
    """Tokenises with one tokenizer; `placed` says whether where the tokens stand is wanted, which takes longer."""

    def __init__(self, tokenizer: Tokenizer, *, placed: bool = False) -> None:
        self._tokenizer = tokenizer
        self._placed = placed
        self._place: re.Pattern[str] | None = None
        self._tried = False

    async def read(self, texts: Sequence[str], most: int) -> list[Tokens]:
        """Return what `each` yields."""
        return [tokens async for tokens in self.each(texts, most)]

    async def each(self, texts: Sequence[str], most: int) -> AsyncIterator[Tokens]:
        """Yield each text's tokens, to the end or, of a long one, until they are more than `most`.

        They are those of the text in one go, but for a token at a cut where a text has no place for one. Cancelling
        stops it.
        """
        for turn in _turns(texts):
            if len(turn[0]) > split_points.PART:
                yield await self._long(turn[0], most)
                continue
            for tokens in await self._tokens(turn):
                yield tokens

    async def _long(self, text: str, most: int) -> Tokens:
        spans: list[split_points.Span] = []
        read: list[Tokens] = []
        count = 0
        for begin, end in split_points.parts(text, await self._places()):
            spans.append((begin, end))
            read += await self._tokens([text[begin:end]])
            count += len(read[-1].ids)
            if count > most:
                break
        return _joined(spans, read, whole=spans[-1][1] == len(text))

    async def _places(self) -> re.Pattern[str] | None:
        """Return what finds where this tokenizer's texts may be cut, tried out when it is asked for first."""
        if not self._tried:
            samples = split_points.samples()
            read = await self._tokens(split_points.texts(samples))
            self._place = await asyncio.to_thread(split_points.places, samples, read)
            self._tried = True
        return self._place

    async def _tokens(self, texts: Sequence[str]) -> list[Tokens]:
        if self._placed:
            return [Tokens(one.ids, one.spans, one.words) for one in await self._tokenizer.pieces(texts)]
        begin, behind = len(self._tokenizer.prefix), len(self._tokenizer.suffix)
        nowhere = np.empty((0, 2), dtype=np.int32)
        found = await self._tokenizer.encode(texts)
        return [Tokens(ids[begin : len(ids) - behind], nowhere, nowhere[:, 0]) for ids in found]


def _joined(spans: Sequence[split_points.Span], read: Sequence[Tokens], *, whole: bool) -> Tokens:
    """Return the tokens of a text's parts as those of the text."""
    words: list[Ids] = []
    above = 0
    for part in read:
        words.append(np.where(part.words < 0, -1, part.words + above))
        above += int(part.words.max(initial=-1)) + 1
    shifted = [part.spans + begin for (begin, _), part in zip(spans, read, strict=True)]
    return Tokens(
        ids=np.concatenate([part.ids for part in read]),
        spans=np.concatenate(shifted).astype(np.int32),
        words=np.concatenate(words).astype(np.int32),
        whole=whole,
    )


def _turns(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield texts that are tokenised in one go: a long one alone."""
    turn: list[str] = []
    count = 0
    for text in texts:
        size = len(text)
        if turn and (max(size, len(turn[0])) > split_points.PART or count + size > _TURN):
            yield turn
            turn, count = [], 0
        turn.append(text)
        count += size
    if turn:
        yield turn
