"""A request's texts in groups to compute together; the words of a long one are those of the text in one go."""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import tinytokenizers
import walks
from hypothesis import given

from functions.engines.batching import text_split_points
from functions.engines.batching.item import Encoding
from functions.ner import tokenize
from functions.ner.tokenize import GroupTokenizer
from functions.ner.words import words
from host.errors import InputTooLong


@cache
def reader(kind: str) -> GroupTokenizer:
    return GroupTokenizer(tinytokenizers.literal(kind))


async def grouped(made: GroupTokenizer, texts: list[str]) -> list[list[Encoding]]:
    named = [(f"texts[{at}]", text) for at, text in enumerate(texts)]
    return [group async for group in made.groups(named)]


def read(text: str, kind: str) -> Encoding:
    ((found,),) = asyncio.run(grouped(reader(kind), [text]))
    return found


def read_whole(text: str, kind: str) -> Encoding:
    return asyncio.run(tinytokenizers.literal(kind).pieces([text]))[0]


@pytest.mark.parametrize("kind", sorted(tinytokenizers.TOKENIZERS))
@pytest.mark.soak
def test_words_are_those_of_the_whole(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_split_points, "PART", 8)

    @walks.examples(50, 1000)
    @given(tinytokenizers.TEXTS)
    def check(text: str) -> None:
        ours, theirs = words(text, read(text, kind)), words(text, read_whole(text, kind))
        assert [place for place in ours.char_spans if len(set(place)) > 1] == [
            p for p in theirs.char_spans if len(set(p)) > 1
        ]
        assert np.array_equal(ours.starts, theirs.starts)

    check()


@pytest.mark.parametrize("kind", ["bert", "whole"])
@pytest.mark.parametrize("unit", ["a", "e\u0301", "👩🏽\u200d"])
def test_a_cut_in_what_has_no_place_for_one_parts_no_word(kind: str, unit: str) -> None:
    text = "Clara " + unit * (68_000 // len(unit)) + " Barton"
    found = words(text, read(text, kind))
    assert [text[begin:end] for begin, end in found.char_spans if begin < end] == text.split()


def test_too_many_tokens_are_refused_without_reading_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tinytokenizers.literal("bert")
    real, seen = made.pieces, []

    async def pieces(texts: list[str]) -> list[Encoding]:
        seen.append(sum(map(len, texts)))
        return await real(texts)

    monkeypatch.setattr(made, "pieces", pieces)
    said = r"^texts\[1\] is too large: it has more than 262144 tokens; send it in parts$"
    with pytest.raises(InputTooLong, match=said) as caught:
        asyncio.run(grouped(GroupTokenizer(made), ["Clara", "中" * 5_000_000]))
    assert caught.value.param == "texts[1]"
    assert sum(seen) < 500_000
    seen.clear()
    with pytest.raises(InputTooLong, match=r"^texts\[1\] is too large: it has more than 16777216 characters"):
        asyncio.run(grouped(GroupTokenizer(made), ["Clara", "a" * 17_000_000]))
    assert not seen


@pytest.mark.parametrize("sizes", [[3] * 2048, [70_000, 3, 3], [3, 70_000, 3], [20_000] * 9, [0], [0, 0, 3]])
def test_many_texts_are_computed_in_groups(sizes: list[int]) -> None:
    texts = ["中" * size for size in sizes]
    groups = asyncio.run(grouped(reader("bert"), texts))
    assert [piece.ids.tolist() for group in groups for piece in group] == [
        read_whole(text, "bert").ids.tolist() for text in texts
    ]
    counts = [[len(piece.ids) for piece in group] for group in groups]
    assert all(len(group) == 1 or sum(group) <= tokenize._GROUP for group in counts)
    assert all(sum(group) + then[0] > tokenize._GROUP for group, then in pairwise(counts))
