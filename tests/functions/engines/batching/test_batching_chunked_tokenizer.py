"""Texts of any length as tokens: those of the text in one go, in bounded steps, and no more than are enough."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any

import anyio
import numpy as np
import pytest
import tinytokenizers
import walks
from hypothesis import given

from functions.engines.batching import chunked_tokenizer, text_split_points
from functions.engines.batching.chunked_tokenizer import ChunkedTokenizer, Tokens
from functions.engines.batching.item import Encoding, Ids
from functions.engines.batching.text_boundaries import trimmed
from functions.engines.checkpoint.tokenizer import FastTokenizer


@cache
def made_reader(kind: str, *, placed: bool) -> ChunkedTokenizer:
    return ChunkedTokenizer(tinytokenizers.literal(kind), with_offsets=placed)


def read(text: str, kind: str, *, placed: bool) -> Tokens:
    return asyncio.run(made_reader(kind, placed=placed).read([text], 10**9))[0]


def read_whole(text: str, kind: str) -> Encoding:
    return asyncio.run(tinytokenizers.literal(kind).pieces([text]))[0]


def shown(text: str, tokens: Encoding) -> list[tuple[int, int] | None]:
    """Return where each token stands, without white space at its ends; None for one that has nothing else."""
    places = [trimmed(text, *span) for span in tokens.spans.tolist()]
    return [place if place[0] < place[1] else None for place in places]


@pytest.mark.soak
@pytest.mark.parametrize("kind", sorted(tinytokenizers.TOKENIZERS))
@pytest.mark.parametrize("placed", [True, False])
def test_tokens_are_those_of_the_whole(kind: str, placed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_split_points, "PART", 8)
    place = asyncio.run(made_reader(kind, placed=placed)._split_pattern())
    parts = []

    @walks.examples(50, 1000)
    @given(tinytokenizers.TEXTS)
    def check(text: str) -> None:
        found, expected = read(text, kind, placed=placed), read_whole(text, kind)
        assert np.array_equal(found.ids, expected.ids)
        assert found.whole
        if placed:
            ours, theirs = shown(text, found), shown(text, expected)
            assert all(a == b for a, b in zip(ours, theirs, strict=True) if b is not None)
            assert np.array_equal(np.diff(found.words) != 0, np.diff(expected.words) != 0)
        else:
            assert not found.spans.size
        parts.append(len(list(text_split_points.parts(text, place))))

    check()
    assert (max(parts) > 2) is (place is not None)


@pytest.mark.parametrize("kind", sorted(tinytokenizers.TOKENIZERS))
@pytest.mark.parametrize("special", ["</s>", "<s>", "<unk>"])
def test_no_special_token_is_parted(kind: str, special: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read as such where nobody asked for words only."""
    monkeypatch.setattr(text_split_points, "PART", 8)
    made = FastTokenizer(tinytokenizers.TOKENIZERS[kind]())
    text = f"Clara {special} lives in{special}Berlin, {special} " * 6
    (found,) = asyncio.run(ChunkedTokenizer(made).read([text], 10**9))
    (whole,) = asyncio.run(made.encode([text]))
    assert found.ids.tolist() == whole[len(made.prefix) : len(whole) - len(made.suffix)].tolist()
    made.close()


class Listening:
    """A tokenizer that remembers what it was asked at once: one token a word, none for a space."""

    prefix, suffix = [1], [2, 3]

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def encode(self, texts: Sequence[str]) -> list[Ids]:
        self.asked.append(list(texts))
        return [np.array([1, *self.bare(text), 2, 3], dtype=np.int32) for text in texts]

    async def pieces(self, texts: Sequence[str]) -> list[Encoding]:
        raise AssertionError("nobody asked for places")

    def bare(self, text: str) -> list[int]:
        return [10 + len(word) for word in text.split()]


async def listening() -> tuple[Listening, ChunkedTokenizer]:
    """Return a tokenizer and its reader that has tried its samples."""
    tokenizer = Listening()
    made = ChunkedTokenizer(tokenizer)
    await made._split_pattern()
    tokenizer.asked.clear()
    return tokenizer, made


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_split_points, "PART", 5)
    monkeypatch.setattr(text_split_points, "UNBROKEN", 12)
    monkeypatch.setattr(chunked_tokenizer, "_BATCH_CHARS", 12)


@pytest.mark.anyio
@pytest.mark.usefixtures("small")
async def test_so_many_characters_at_once_and_in_order() -> None:
    tokenizer, made = await listening()
    texts = ["one", "two", "three", "four", "fifty six seven eight nine", "eleventh", "ten", ""]
    found = await made.read(texts, 100)
    assert [tokens.ids.tolist() for tokens in found] == [tokenizer.bare(text) for text in texts]
    assert all(tokens.whole for tokens in found)
    assert tokenizer.asked == [
        ["one", "two", "three"],
        ["four"],
        ["fifty"],
        [" six seven"],
        [" eight"],
        [" nine"],
        ["eleventh"],
        ["ten", ""],
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("size", [3, text_split_points.PART])
async def test_short_texts_need_no_samples(size: int) -> None:
    tokenizer = Listening()
    await ChunkedTokenizer(tokenizer).read(["x" * size], 100)
    assert tokenizer.asked == [["x" * size]]


@pytest.mark.anyio
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("most", "count", "whole"), [(0, 1, False), (1, 3, False), (3, 4, False), (4, 5, True), (5, 5, True)]
)
async def test_reading_ends_when_it_is_enough(most: int, count: int, whole: bool) -> None:
    tokenizer, made = await listening()
    found, other = await made.read(["fifty six seven eight nine", "ten"], most)
    assert (len(found.ids), found.whole) == (count, whole)
    assert other.ids.tolist() == tokenizer.bare("ten")


@pytest.mark.parametrize("sizes", [[3] * 2048, [70_000, 3, 3], [3, 70_000, 3], [20_000] * 9, [0], [0, 0, 3], []])
def test_many_texts_are_read_in_batches(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    made = tinytokenizers.literal("bert")
    texts = ["中" * size for size in sizes]
    expected = [asyncio.run(made.pieces([text]))[0] for text in texts]
    fresh = ChunkedTokenizer(made, with_offsets=True)
    asyncio.run(fresh._split_pattern())
    real, turns = made.pieces, [0]

    async def pieces(texts: Sequence[str]) -> list[Encoding]:
        turns.append(sum(map(len, texts)))
        return await real(texts)

    monkeypatch.setattr(made, "pieces", pieces)
    found = asyncio.run(fresh.read(texts, 10**9))
    assert [tokens.ids.tolist() for tokens in found] == [tokens.ids.tolist() for tokens in expected]
    assert max(turns) <= text_split_points.UNBROKEN


@pytest.mark.anyio
@pytest.mark.parametrize("placed", [True, False])
async def test_others_come_in_between(placed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short text that comes while a long one is tokenised waits for one part of it."""
    monkeypatch.setattr(text_split_points, "PART", 1000)
    made = made_reader("bert", placed=placed)
    await made._split_pattern()
    done: list[Any] = []

    async def go(name: str, text: str) -> None:
        await made.read([text], 10**9)
        done.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(go, "long", "river stone " * 20_000)
        await anyio.sleep(0.005)
        group.start_soon(go, "short", "river")
    assert done == ["short", "long"]
