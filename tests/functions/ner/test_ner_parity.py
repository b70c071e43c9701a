"""The same entities and scores as Transformers' own pipeline on the same weights, with every kind of tokenizer."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from functions.ner.api import NerRequest
from functions.ner.instance import NerInstance

pytestmark = pytest.mark.anyio

Opener = Callable[..., NerInstance]
Tiny = Callable[..., Path]
Direct = Callable[[Path, str, str], list[tuple[str, int, int, float]]]

KINDS = ["bert", "distilbert", "roberta", "modernbert", "xlm-roberta", "deberta-v2"]
WORDS = (  # noqa: SIM905
    "Clara Barton lives in Berkeley California , and works for the Red Cross in Washington . My name is Wolfgang and I "
    "live in Berlin ( Germany ) near the river Spree . The quick brown fox jumps over the lazy dog"
).split()
PERSONAL = (
    "My name is John Smith, I live at 12 Elm Street, Springfield, IL 62704. Mail john.smith@example.com!",
    "Contact: anna.kowalska@firma.pl, passport X1234567, driver license D123-4567-8901.",
    "Patient Müller-Lüdenscheidt, Jürgen; SSN 472-81-0094; https://example.org/x?u=1",
    "nothing to see here",
)


async def ours(instance: NerInstance, text: str, strategy: str) -> list[tuple[str, int, int, float]]:
    answer = await instance.answer(NerRequest(model="m", input=text, aggregation_strategy=strategy))
    return [(entity.label, entity.start, entity.end, entity.score) for entity in answer.data[0].entities]


def same(found: list[Any], expected: list[tuple[str, int, int, float]], text: str) -> None:
    """Theirs of models that mark spaces begin with the space; ours never do."""
    places = [(label, end - len(text[start:end].lstrip()), end) for label, start, end, _ in expected]
    assert [item[:3] for item in found] == places
    assert [item[3] for item in found] == pytest.approx([item[3] for item in expected], abs=1e-5)


@pytest.mark.parametrize("strategy", ["first", "average", "max"])
@pytest.mark.parametrize("kind", KINDS)
async def test_words(tiny: Tiny, opener: Opener, direct: Direct, kind: str, strategy: str) -> None:
    path = tiny(kind)
    chosen = random.Random(f"{kind} {strategy}")
    entities = 0
    for _ in range(8):
        text = " ".join(chosen.choices(WORDS, k=14))
        found = await ours(opener(path), text, strategy)
        same(found, direct(path, text, strategy), text)
        entities += len(found)
    assert entities > 8


@pytest.mark.parametrize("strategy", ["first", "average", "max"])
@pytest.mark.parametrize("kind", ["roberta", "modernbert", "xlm-roberta", "deberta-v2"])
async def test_words_between_spaces(tiny: Tiny, opener: Opener, direct: Direct, kind: str, strategy: str) -> None:
    path = tiny(kind)
    instance = opener(path, {"words": "spaces"})
    for text in (
        "My name is Clara, and I live in Berlin, Germany.",
        "Barton, Clara. The Red Cross. Wolfgang, near the Spree.",
        "Clara , Barton . jumps over Washington, and lives.",
    ):
        same(await ours(instance, text, strategy), direct(path, text, strategy), text)


@pytest.mark.parametrize("kind", KINDS)
async def test_simple_where_words_are_single_tokens(tiny: Tiny, opener: Opener, direct: Direct, kind: str) -> None:
    path = tiny(kind)
    tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    single = [word for word in WORDS if len(tokenizer.encode(f"in {word}", add_special_tokens=False)) == 2]
    assert len(set(single)) > 7
    chosen = random.Random(kind)
    for _ in range(8):
        text = " ".join(["in", *chosen.choices(single, k=14)])
        same(await ours(opener(path), text, "simple"), direct(path, text, "simple"), text)


@pytest.mark.parametrize("kind", KINDS)
async def test_simple_cuts_no_word_and_loses_no_token(tiny: Tiny, opener: Opener, direct: Direct, kind: str) -> None:
    path = tiny(kind)
    instance = opener(path)
    chosen = random.Random(kind)
    for _ in range(8):
        text = " ".join(chosen.choices(WORDS, k=14))
        found = await ours(instance, text, "simple")
        for label, start, end, score in found:
            assert label in ("PER", "LOC")
            assert 0 < score <= 1
            assert start == 0 or text[start - 1] == " "
            assert end == len(text) or text[end] == " "
        for _, start, end, _ in direct(path, text, "simple"):
            for at in range(start, end):
                assert text[at] == " " or any(begin <= at < last for _, begin, last, _ in found)


@pytest.mark.parametrize("engine", ["transformers", "onnx"])
@pytest.mark.parametrize("strategy", ["first", "average", "max"])
async def test_the_real_model(
    rampart: Path, rampart_onnx: Path, opener: Opener, direct: Direct, strategy: str, engine: str
) -> None:
    instance = opener(rampart if engine == "transformers" else rampart_onnx, engine=engine)
    entities = 0
    for text in PERSONAL:
        found = await ours(instance, text, strategy)
        same(found, direct(rampart, text, strategy), text)
        entities += len(found)
    assert entities > 15
