"""What is a word, in every script and with every kind of tokenizer, and that texts keep every character."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import walks
from hypothesis import given
from hypothesis import strategies as st

from functions.engines.batching.item import Encoding
from functions.engines.batching.text_boundaries import extends
from functions.ner.api import NerRequest
from functions.ner.instance import NerInstance
from functions.ner.words import words

KINDS = ["bert", "roberta", "xlm-roberta", "deberta-v2", "prefixed", "newer", "folding", "whole"]
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
PARTS = (
    *("Clara", "Berlin", " ", "  ", "\n", "\r\n", "\t", ",", ".", "(", "-", "_", "'", "@", "12", "3", "€", "ß", "İ"),
    *(
        "José",
        unicodedata.normalize("NFD", "José Nguyễn"),
        "e\u0301",
        "\u0301",
        "😀",
        "👩🏽‍🚀",
        "🇩🇪",
        "👨‍👩‍👧",
        "\ufe0f",
    ),
    *(
        "\u200b",
        "\u200d",
        "\u200c",
        "\u00ad",
        "\ufeff",
        "\u00a0",
        "שלום",
        "مرحبا",
        "می‌خواهم",
        "ﾊﾞﾊﾟ",
        "日本語",
        "東京",
        "カタカナ",
        "ไทย",
    ),
    *(
        "한국어",
        unicodedata.normalize("NFD", "한국"),
        "\uff2a\uff4f\uff48\uff4e",
        "ﬁne",
        "\U0001d518\U0001d52b",
        "\x00",
        "\x07",
        "<s>",
        "</s>",
        "<unk>",
    ),
)
TEXTS = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(PARTS), max_size=14).map("".join),
    st.lists(st.sampled_from(PARTS), max_size=14).map(" ".join),
)


def pieces(text: str, tokens: list[str], ids: list[int] | None = None) -> Encoding:
    """Find tokens in a text one behind the other; `_` before a token is a space that belongs to it."""
    spans, at = [], 0
    for token in tokens:
        begin = text.index(token, at)
        spans.append((begin, begin + len(token)))
        at = begin + len(token)
    known = ids or [0] * len(tokens)
    count = len(tokens)
    return Encoding(np.zeros(count, np.int32), np.array(spans, np.int32).reshape(-1, 2), np.array(known, np.int32))


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (["Ber", "lin", ",", " Ger", "many", "."], ["Berlin", ",", "Germany", "."]),
        (["O", "'", "Bri", "en"], ["O", "'", "Brien"]),
        (["abc", "123", " x"], ["abc123", "x"]),
        (["john", ".", "smith", "@", "x", ".", "org"], ["john", ".", "smith", "@", "x", ".", "org"]),
        (["€", "100", " 5", "%"], ["€100", "5", "%"]),
        (["東", "京", " To", "kyo"], ["東", "京", "Tokyo"]),
        (["ไท", "ย"], ["ไท", "ย"]),
        (["Ma", "x", "😀", " hi"], ["Max", "😀", "hi"]),
        (["caf", "e\u0301", "s"], ["cafe\u0301s"]),
        (["❤\ufe0f", "Max", "👍", "🏽", "Jo"], ["❤\ufe0f", "Max", "👍🏽", "Jo"]),
        (["👩", "🏽", "\u200d", "🚀"], ["👩🏽\u200d🚀"]),
        (["🏴", "\U000e0067", "\U000e0062\U000e007f", "x"], ["🏴\U000e0067\U000e0062\U000e007f", "x"]),
        (["🇩", "🇪", " x"], ["🇩🇪", "x"]),
        (["a\n", "b"], ["a", "b"]),
        (["a", " \n", "b"], ["a", "", "b"]),
        (["한", "국", "어"], ["한국어"]),
        (["שלו", "ם"], ["שלום"]),
        (["\u200f", "של", "ום", "\u200e", " \ufeff", "x"], ["שלום", "x"]),
        (["Spring", "\u00ad", "field", "\u200b", "."], ["Spring\u00adfield", "."]),
        (["a", " \u200b", " b"], ["a", "", "b"]),
        (["U.", "S.", " army"], ["U.", "S.", "army"]),
    ],
)
def test_words(tokens: list[str], found: list[str]) -> None:
    text = "".join(tokens)
    made = words(text, pieces(text, tokens))
    assert [text[begin:end] for begin, end in made.char_spans] == found


def test_words_between_spaces() -> None:
    text = "Ms. O'Brien, (Tokyo 東京)"
    tokens = ["Ms", ".", " O", "'", "Brien", ",", " (", "Tokyo", " 東", "京", ")"]
    made = words(text, pieces(text, tokens), "spaces")
    assert [text[begin:end] for begin, end in made.char_spans] == ["Ms.", "O'Brien,", "(Tokyo", "東京)"]


def test_a_mark_that_normalisation_took_stays_with_its_letter() -> None:
    text = "e\u0301 Jose\u0301\u0323, x"
    made = words(text, pieces(text, ["e", "Jose", ",", "x"]))
    assert [text[begin:end] for begin, end in made.char_spans] == ["e\u0301", "Jose\u0301\u0323", ",", "x"]


def test_tokens_that_share_a_character_are_one_word() -> None:
    text = "日 x"
    spans = np.array([(0, 1), (0, 1), (0, 1), (2, 3)], np.int32)
    made = words(text, Encoding(np.zeros(4, np.int32), spans, np.array([0, 0, 0, 1], np.int32)))
    assert made.starts.tolist() == [0, 3]


@pytest.mark.parametrize(
    "written", ["\u1112\u1161\u11ab\u1100\u116e\u11a8", "\uff8a\uff9e\uff8a\uff9f", "\u1112\u1161"]
)
def test_what_composition_took_stays_with_its_letter(written: str) -> None:
    """Tokenizers give what they compose the place of its first letter alone."""
    text = f"{written} x"
    made = words(text, pieces(text, [*(char for char in written if not extends(char)), "x"]))
    assert "".join(text[begin:end] for begin, end in made.char_spans) == f"{written}x"


@pytest.mark.parametrize(("written", "word"), [("0\r\u00ad", "0"), ("\u200b \u200bx", "x"), ("a \ufeff\n\u00ad", "a")])
def test_a_word_ends_where_its_last_visible_character_does(written: str, word: str) -> None:
    made = words(
        written, Encoding(np.zeros(1, np.int32), np.array([(0, len(written))], np.int32), np.zeros(1, np.int32))
    )
    assert [written[begin:end] for begin, end in made.char_spans] == [word]


@pytest.mark.parametrize("span", [(2, 3), (3, 3), (2, 2)])
def test_a_space_mark_that_is_a_token_is_of_the_word_behind_it(span: tuple[int, int]) -> None:
    text = "a, Zoë"
    spans = np.array([(0, 1), (1, 2), span, (3, 4), (4, 6)], np.int32)
    made = words(text, Encoding(np.zeros(5, np.int32), spans, np.array([0, 1, 2, 2, 2], np.int32)))
    assert made.starts.tolist() == [0, 1, 2]
    assert [text[begin:end] for begin, end in made.char_spans] == ["a", ",", "Zoë"]


def letters(text: str, at: int) -> bool:
    """Say whether a border lies between two letters or digits of a script with spaces."""
    if not 0 < at < len(text):
        return False
    pair = text[at - 1 : at + 1]
    named = [unicodedata.name(char, "") for char in pair]
    return all(unicodedata.category(char)[0] in "LN" for char in pair) and not any(
        name.startswith(UNSPACED) for name in named
    )


@pytest.fixture(scope="module", params=KINDS)
def instance(
    request: pytest.FixtureRequest, tiny: Callable[..., Path], opener: Callable[..., NerInstance]
) -> NerInstance:
    labels = ("O", "B-GIVEN-NAME", "I-GIVEN-NAME", "E-GIVEN-NAME", "B-P", "I-P", "S-P")
    kind = request.param if request.param in ("bert", "roberta", "xlm-roberta", "deberta-v2") else "bert"
    return opener(tiny(kind, labels, reads=request.param))


@pytest.mark.soak
def test_places_are_exact(instance: NerInstance) -> None:
    @walks.examples(60, 1000)
    @given(
        text=TEXTS, strategy=st.sampled_from(["simple", "first", "average", "max"]), window=st.sampled_from([5, 9, 40])
    )
    def check(text: str, strategy: str, window: int) -> None:
        request = NerRequest(
            model="m", input=text, aggregation_strategy=strategy, max_length=window, redaction="\ue000{label}\ue001"
        )
        found = asyncio.run(instance.answer(request)).data[0]
        end = 0
        rest = found.redacted_text or ""
        for entity in found.entities:
            assert entity.label in ("GIVEN-NAME", "P")
            assert end <= entity.start < entity.end <= len(text)
            assert text[entity.start : entity.end] == entity.text == entity.text.strip()
            assert not letters(text, entity.start)
            assert not letters(text, entity.end)
            assert not unicodedata.category(text[entity.end : entity.end + 1] or " ").startswith("M")
            end = entity.end
            rest = rest.replace(entity.replacement or "", entity.text, 1)
        assert rest == text

    check()


@pytest.mark.soak
def test_other_units_count_the_same_text(instance: NerInstance) -> None:
    @walks.examples(40, 500)
    @given(text=TEXTS)
    def check(text: str) -> None:
        for unit, codec, size in (("utf16", "utf-16-le", 2), ("byte", "utf-8", 1)):
            found = asyncio.run(instance.answer(NerRequest(model="m", input=text, offset_unit=unit))).data[0].entities
            coded = text.encode(codec)
            shown = [coded[size * entity.start : size * entity.end].decode(codec) for entity in found]
            assert shown == [entity.text for entity in found]

    check()


def test_something_was_found(instance: NerInstance) -> None:
    texts = [" ".join(PARTS[at : at + 6]) for at in range(0, len(PARTS) - 6, 3)]
    answer = asyncio.run(instance.answer(NerRequest(model="m", input=texts)))
    assert sum(len(found.entities) for found in answer.data) > 20
    assert any(re.search(r"[^\x00-\x7f]", entity.text) for found in answer.data for entity in found.entities)
