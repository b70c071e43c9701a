"""Where long texts are cut: at places a tokenizer's own samples allow, else at any, and never in parts too large."""

from __future__ import annotations

import asyncio
import re

import pytest
import tinytokenizers

from functions.engines.batching import text_split_points
from functions.engines.batching.chunked_tokenizer import ChunkedTokenizer
from functions.engines.checkpoint.tokenizer import FastTokenizer

UNBROKEN = ["a", "e\u0301", "👩🏽\u200d", "\u0301", " ", "\n"]
ALL = {" ", "\n", "\u3000", ",", "。"}
WHITE = {" ", "\n", "\u3000"}


def place(kind: str, *, placed: bool) -> re.Pattern[str] | None:
    tokenizer = FastTokenizer(tinytokenizers.TOKENIZERS[kind]())
    return asyncio.run(ChunkedTokenizer(tokenizer, with_offsets=placed)._split_pattern())


@pytest.mark.parametrize(
    ("kind", "with_places", "ids_alone"),
    [
        ("bert", ALL, ALL),
        ("roberta", ALL, ALL),
        ("prefixed", {" "}, {" "}),
        ("newer", WHITE, WHITE),
        ("xlm-roberta", WHITE, WHITE),
        ("folding", WHITE, WHITE),
        ("deberta-v2", {" "}, {" "}),
        ("unigram", {" "}, {" "}),
        ("llama", set(), {" "}),
        ("whole", set(), set()),
        ("merging", set(), set()),
    ],
)
@pytest.mark.parametrize("placed", [True, False])
def test_where_a_tokenizers_texts_are_cut(kind: str, with_places: set[str], ids_alone: set[str], placed: bool) -> None:
    """Behind these, or at them. Where a token stands is known for sure only where the tokenizer knows words."""
    texts = {
        " ": "x Berlin",
        "\n": "x\nBerlin",
        "\u3000": "x\u3000Berlin",
        ",": "x,Berlin",
        "。": "東京。東京",
        "": "xBerlin",
        "unseen": "x\u200b Berlin",
        "mark and line": "x.\nBerlin",
    }
    found = place(kind, placed=placed)
    cut = {mark for mark, text in texts.items() if found and found.search(text)}
    assert cut == (with_places if placed else ids_alone)


@pytest.mark.parametrize(("kind", "left_out"), [("bert", ""), ("llama", " ")])
def test_a_long_text_is_cut_where_it_can_be(kind: str, left_out: str) -> None:
    text = "Clara Barton lives in Berlin.\n" * 4000
    found = list(text_split_points.parts(text, place(kind, placed=False)))
    assert left_out.join(text[begin:end] for begin, end in found) == text
    assert all(text_split_points.PART <= end - begin < text_split_points.PART + 20 for begin, end in found[:-1])
    assert all(text[end].isspace() for _, end in found[:-1])


@pytest.mark.parametrize(
    ("given", "kind", "parts"),
    [
        ("short", "bert", ["short"]),
        ("tall", "bert", ["tall"]),
        ("", "bert", [""]),
        ("river stone, light", "bert", ["river", " stone,", " light"]),
        ("river stone, light", "llama", ["river", "stone,", "light"]),
        ("river stone, light", "merging", ["river", " stone,", " light"]),
        ("river,stone (so)", "bert", ["river,", "stone (so)"]),
        ("riverstonelight", "bert", ["riverstone", "light"]),
        (" " * 12, "bert", [" " * 10, "  "]),
    ],
)
def test_parts(given: str, kind: str, parts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first place behind four characters, or before white space; anywhere after ten."""
    found = place(kind, placed=False)
    monkeypatch.setattr(text_split_points, "PART", 4)
    monkeypatch.setattr(text_split_points, "UNBROKEN", 10)
    assert [given[begin:end] for begin, end in text_split_points.parts(given, found)] == parts


@pytest.mark.parametrize("kind", ["bert", "merging"])
@pytest.mark.parametrize("unit", UNBROKEN)
def test_what_has_no_place_to_cut_is_cut_all_the_same(kind: str, unit: str) -> None:
    text = "Clara " + unit * (68_000 // len(unit)) + " Barton"
    spans = list(text_split_points.parts(text, place(kind, placed=True)))
    assert len(spans) > 1
    assert all(0 < end - begin <= text_split_points.UNBROKEN for begin, end in spans)
    assert "".join(text[begin:end] for begin, end in spans) == text
