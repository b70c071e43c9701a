"""The real model for personal data, as it was published (ONNX) and as safetensors: what it finds, and in long texts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from functions.ner.api import NerAnswer, NerRequest
from functions.ner.instance import NerInstance

pytestmark = pytest.mark.anyio

Opener = Callable[..., NerInstance]

LETTER = (
    "My name is John Smith, I live at 12 Elm Street, Springfield, IL 62704. "
    "Mail me at john.smith@example.com or call +1 (555) 010-2020."
)
FOUND = [
    ("GIVEN_NAME", "John"),
    ("SURNAME", "Smith"),
    ("BUILDING_NUMBER", "12"),
    ("STREET_NAME", "Elm Street"),
    ("CITY", "Springfield"),
    ("STATE", "IL"),
    ("ZIP_CODE", "62704"),
    ("EMAIL", "john.smith@example.com"),
    ("PHONE", "(555) 010-2020"),
]
SENTENCES = (
    "My name is John Smith, and I live at 12 Elm Street.",
    "The parcel goes to Maria Gonzalez in Portland, Oregon 97201.",
    "Please call Ravi Patel at 503-555-0142 tomorrow morning.",
    "The weather is fine, and nothing else happened today.",
    "Her passport is X1234567, as the clerk wrote down.",
)


@pytest.fixture(scope="module")
def instance(rampart_onnx: Path, opener: Opener) -> NerInstance:
    return opener(rampart_onnx, {"join": True}, engine="onnx", context=128)


def listed(answer: NerAnswer, index: int = 0) -> list[tuple[str, str]]:
    return [(entity.label, entity.text) for entity in answer.data[index].entities]


@pytest.mark.parametrize("strategy", ["simple", "first", "average", "max"])
async def test_what_it_finds(instance: NerInstance, strategy: str) -> None:
    answer = await instance.answer(NerRequest(model="m", input=LETTER, aggregation_strategy=strategy))
    assert listed(answer) == FOUND
    assert all(0.6 < entity.score <= 1 for entity in answer.data[0].entities)


@pytest.mark.parametrize("strategy", ["simple", "first", "average", "max"])
async def test_both_engines_find_the_same(rampart: Path, rampart_onnx: Path, opener: Opener, strategy: str) -> None:
    request = NerRequest(model="m", input=[LETTER, *SENTENCES], aggregation_strategy=strategy)
    one = await opener(rampart).answer(request)
    other = await opener(rampart_onnx, engine="onnx").answer(request)
    assert one.usage == other.usage
    for ours, theirs in zip(one.data, other.data, strict=True):
        places = [(entity.label, entity.start, entity.end) for entity in ours.entities]
        assert places == [(entity.label, entity.start, entity.end) for entity in theirs.entities]
        scores = [entity.score for entity in theirs.entities]
        assert np.allclose([entity.score for entity in ours.entities], scores, atol=1e-4)


async def test_the_engines_default_precision_finds_the_same(rampart: Path, opener: Opener) -> None:
    answer = await opener(rampart, {"join": True}, quantization=None).answer(NerRequest(model="m", input=LETTER))
    assert listed(answer) == FOUND


async def test_redaction(instance: NerInstance) -> None:
    answer = await instance.answer(NerRequest(model="m", input=LETTER, redact=True))
    assert answer.data[0].redacted_text == (
        "My name is [GIVEN_NAME] [SURNAME], I live at [BUILDING_NUMBER] [STREET_NAME], [CITY], [STATE] [ZIP_CODE]. "
        "Mail me at [EMAIL] or call +1 [PHONE]."
    )
    entity = answer.data[0].entities[7]
    assert LETTER[entity.start : entity.end] == "john.smith@example.com"
    assert entity.replacement == "[EMAIL]"


async def test_a_person_has_one_number_in_all_texts(instance: NerInstance) -> None:
    texts = ["My name is John Smith.", "I am Maria Gonzalez.", "Dear JOHN SMITH, hello."]
    request = NerRequest(model="m", input=texts, redaction="<{label}{n}>", labels=["GIVEN_NAME", "SURNAME"])
    shown = [found.redacted_text for found in (await instance.answer(request)).data]
    assert shown == [
        "My name is <GIVEN_NAME1> <SURNAME1>.",
        "I am <GIVEN_NAME2> <SURNAME2>.",
        "Dear <GIVEN_NAME1> <SURNAME1>, hello.",
    ]


async def test_thresholds_and_labels_drop_entities(instance: NerInstance) -> None:
    sure = await instance.answer(NerRequest(model="m", input=LETTER, threshold=0.95))
    assert ("EMAIL", "john.smith@example.com") not in listed(sure)
    assert ("SURNAME", "Smith") in listed(sure)
    cities = await instance.answer(NerRequest(model="m", input=LETTER, labels=["CITY"], redaction="*"))
    assert listed(cities) == [("CITY", "Springfield")]
    assert cities.data[0].redacted_text == LETTER.replace("Springfield", "*" * 11)
    nothing = await instance.answer(NerRequest(model="m", input=LETTER, threshold=1, redact=True))
    assert nothing.data[0].redacted_text == LETTER


async def test_what_looks_like_a_special_token_hides_nothing(instance: NerInstance) -> None:
    text = "[CLS] [SEP] My name is John Smith [SEP] and I live in Springfield. [PAD]"
    answer = await instance.answer(NerRequest(model="m", input=text))
    assert {("GIVEN_NAME", "John"), ("SURNAME", "Smith"), ("CITY", "Springfield")} <= set(listed(answer))


@pytest.mark.parametrize("empty", ["", " ", "\r\n\t", "\u200b"])
async def test_a_text_without_words_has_no_entities(instance: NerInstance, empty: str) -> None:
    answer = await instance.answer(NerRequest(model="m", input=["Hi John Smith", empty, "Hi John Smith"], redact=True))
    assert listed(answer, 1) == []
    assert answer.data[1].redacted_text == empty
    assert listed(answer, 0) == listed(answer, 2) != []


async def test_a_long_text_has_the_entities_of_its_sentences(instance: NerInstance) -> None:
    times = 30
    text = " ".join(SENTENCES * times)
    pieces = await instance.answer(NerRequest(model="m", input=list(SENTENCES)))
    expected, at = [], 0
    for _ in range(times):
        for sentence, found in zip(SENTENCES, pieces.data, strict=True):
            expected += [(entity.label, entity.text, entity.start + at) for entity in found.entities]
            at += len(sentence) + 1
    answer = await instance.answer(NerRequest(model="m", input=text, max_length=64))
    found = [(entity.label, entity.text, entity.start) for entity in answer.data[0].entities]
    assert len(expected) == 13 * times
    assert len(found) == len(set(found))
    assert len(set(expected) & set(found)) >= 0.97 * len(expected)
    assert len(found) <= 1.03 * len(expected)
    ends = [(entity.start, entity.end) for entity in answer.data[0].entities]
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(ends))


async def test_many_texts_keep_their_order(instance: NerInstance) -> None:
    texts = [f"My name is {name} Smith." for name in ("John", "Maria", "Peter", "Anna")] * 64
    answer = await instance.answer(NerRequest(model="m", texts=texts))
    assert [found.index for found in answer.data] == list(range(256))
    names = [found.entities[0].text for found in answer.data]
    assert names == ["John", "Maria", "Peter", "Anna"] * 64
