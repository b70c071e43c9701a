"""Tokenises texts of any length in bounded steps: a long text in parts, many short ones in batches.

Megabytes of text therefore neither fill memory with the tokenizer's own records nor block other requests.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

import numpy as np

from functions.engines.batching import text_split_points
from functions.engines.batching.item import Encoding, Ids

_BATCH_CHARS = 1 << 16
"""Characters tokenised in one call; requests of others run between two calls."""


class BatchTokenizer(Protocol):
    """The part of a tokenizer that `ChunkedTokenizer` needs."""

    prefix: list[int]
    suffix: list[int]

    async def encode(self, texts: Sequence[str]) -> list[Ids]: ...  # noqa: D102
    async def pieces(self, texts: Sequence[str]) -> list[Encoding]: ...  # noqa: D102


class Tokens(Encoding, frozen=True):
    """A text's tokens without special ones; `spans` and `words` are empty unless `with_offsets` is set."""

    whole: bool = True
    """False when tokenising stopped early, after more than `most` tokens."""


class ChunkedTokenizer:
    """Wraps one tokenizer. `with_offsets` also returns character spans and word numbers, which takes longer."""

    def __init__(self, tokenizer: BatchTokenizer, *, with_offsets: bool = False) -> None:
        self._tokenizer = tokenizer
        self._with_offsets = with_offsets
        self._pattern: re.Pattern[str] | None = None
        self._probed = False

    async def read(self, texts: Sequence[str], most: int) -> list[Tokens]:
        """Return what `each` yields, as a list."""
        return [tokens async for tokens in self.each(texts, most)]

    async def each(self, texts: Sequence[str], most: int) -> AsyncIterator[Tokens]:
        """Yield each text's tokens; of a long text only as many parts as give more than `most` tokens.

        The tokens equal those of the whole text, except at a cut in a text that offers no safe place for one.
        Cancelling stops after the current part.
        """
        for batch in _batches(texts):
            if len(batch[0]) > text_split_points.PART:
                yield await self._encode_long(batch[0], most)
                continue
            for tokens in await self._encode(batch):
                yield tokens

    async def _encode_long(self, text: str, most: int) -> Tokens:
        spans: list[text_split_points.Span] = []
        read: list[Tokens] = []
        count = 0
        for begin, end in text_split_points.parts(text, await self._split_pattern()):
            spans.append((begin, end))
            read += await self._encode([text[begin:end]])
            count += len(read[-1].ids)
            if count > most:
                break
        return _concatenate(spans, read, whole=spans[-1][1] == len(text))

    async def _split_pattern(self) -> re.Pattern[str] | None:
        """Return the pattern of places where texts may be cut; it is determined at the first call."""
        if not self._probed:
            samples = text_split_points.samples()
            read = await self._encode(text_split_points.texts(samples))
            self._pattern = await asyncio.to_thread(text_split_points.places, samples, read)
            self._probed = True
        return self._pattern

    async def _encode(self, texts: Sequence[str]) -> list[Tokens]:
        if self._with_offsets:
            return [Tokens(one.ids, one.spans, one.words) for one in await self._tokenizer.pieces(texts)]
        begin, behind = len(self._tokenizer.prefix), len(self._tokenizer.suffix)
        no_offsets = np.empty((0, 2), dtype=np.int32)
        found = await self._tokenizer.encode(texts)
        return [Tokens(ids[begin : len(ids) - behind], no_offsets, no_offsets[:, 0]) for ids in found]


def _concatenate(spans: Sequence[text_split_points.Span], read: Sequence[Tokens], *, whole: bool) -> Tokens:
    """Concatenate the tokens of a text's parts, with spans and word numbers relative to the text."""
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


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield batches of texts to tokenise in one call; a long text is a batch by itself."""
    batch: list[str] = []
    count = 0
    for text in texts:
        size = len(text)
        if batch and (max(size, len(batch[0])) > text_split_points.PART or count + size > _BATCH_CHARS):
            yield batch
            batch, count = [], 0
        batch.append(text)
        count += size
    if batch:
        yield batch
