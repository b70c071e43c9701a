"""Decisions by classifiers and NLI models, compared with Transformers run directly on the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loads
import numpy as np
import pytest
import torch
import transformers
from decisions import numbers, request_of
from tinymodels import headed

from functions.decide.api import ChoiceAnswer, RefusalAnswer, ScoreAnswer
from functions.decide.label_matching import normalize_label
from functions.decide.transformers import TransformersDecide
from host.errors import InputTooLong, InvalidRequest, LoadFailed

pytestmark = pytest.mark.anyio
TEXT = "river stone light"
Open = Callable[..., tuple[TransformersDecide, "Direct"]]


class Direct:
    """The folder's model on Transformers' own."""

    def __init__(self, folder: Path) -> None:
        self.model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        self.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))

    def logits(self, *texts: str) -> np.ndarray[Any, Any]:
        with torch.no_grad():
            given = self.tokenizer(*texts, return_tensors="pt", return_token_type_ids=True)
            return self.model(**given).logits[0].double().numpy()


def softmax(row: Any, temperature: float = 1.0) -> list[float]:
    weights = np.exp((np.array(row) - np.max(row)) / temperature)
    return list(weights / weights.sum())


@pytest.fixture
def open_(tmp_path: Path) -> Iterator[Open]:
    opened: list[TransformersDecide] = []

    def open_one(
        labels: list[str], options: dict[str, Any] | None = None, **config: Any
    ) -> tuple[TransformersDecide, Direct]:
        folder = headed(tmp_path / "model", "bert", "sequence", labels, **config)
        load = loads.given("decide", folder, options, quantization="fp32")
        opened.append(TransformersDecide.load(load, TransformersDecide.plan(load), loads.ignore))
        return opened[-1], Direct(folder)

    yield open_one
    for model in opened:
        model.close()


async def test_choices_that_are_labels(open_: Open) -> None:
    model, direct = open_(["Very_Good", "so-so", "BAD", "other"])
    asked = [("Which?", ["bad", "very good", "So So"]), ("Which?", ["bad", "unknown"])]
    found = await model.answer(request_of(TEXT, asked))
    row = direct.logits(TEXT)
    assert numbers(found.answers[0]) == pytest.approx(softmax([row[2], row[0], row[1]]), abs=1e-4)
    assert isinstance(found.answers[0], ChoiceAnswer)
    assert found.answers[0].choice == ["bad", "very good", "So So"][int(np.argmax([row[2], row[0], row[1]]))]
    assert found.answers[1] == RefusalAnswer()
    assert found.usage.prompt_tokens == 5


async def test_levels_that_are_labels(open_: Open) -> None:
    model, direct = open_([f"{at} stars" for at in range(1, 6)])
    levels = [{"label": f"{at}_stars"} for at in range(1, 6)]
    found = await model.answer(request_of(TEXT, [{"type": "score", "instructions": "How?", "levels": levels}]))
    shares = softmax(direct.logits(TEXT))
    assert isinstance(found.answers[0], ScoreAnswer)
    assert found.answers[0].score == pytest.approx(sum(at * share for at, share in enumerate(shares)), abs=1e-3)


@pytest.mark.parametrize("labels", [["NO", "YES"], ["true", "false", "other"]])
async def test_statements(labels: list[str], open_: Open) -> None:
    model, direct = open_(labels, {"temperature": 2.0})
    found = await model.answer(request_of(TEXT, ["It is."]))
    row = direct.logits(TEXT)
    yes, no = (1, 0) if labels[0] == "NO" else (0, 1)
    assert numbers(found.answers[0]) == pytest.approx(softmax([row[yes], row[no]], 2.0)[:1], abs=1e-4)


async def test_labels_that_do_not_exclude_each_other(open_: Open) -> None:
    model, direct = open_(["a", "b", "c"], problem_type="multi_label_classification")
    found = await model.answer(request_of(TEXT, [("Which?", ["c", "a"])]))
    own = 1 / (1 + np.exp(-direct.logits(TEXT)))
    assert numbers(found.answers[0]) == pytest.approx(
        [own[2] / (own[0] + own[2]), own[0] / (own[0] + own[2])], abs=1e-4
    )


async def test_a_small_mass_and_a_statement_without_labels_are_refused(open_: Open) -> None:
    model, _ = open_(["a", "b", "c"], {"min_mass": 1.0})
    found = await model.answer(request_of(TEXT, [("Which?", ["a", "b"]), "It is."]))
    assert all(isinstance(answer, RefusalAnswer) for answer in found.answers)


@pytest.mark.parametrize(
    "labels", [["contradiction", "neutral", "ENTAILMENT"], ["entailment", "not_entailment"], ["neutral", "entailment"]]
)
async def test_an_nli_model_answers_anything(labels: list[str], open_: Open) -> None:
    model, direct = open_(labels)
    asked = ["music train", ("bread", ["letter", True]), "garden"]
    found = await model.answer(request_of(TEXT, asked))
    names = [normalize_label(label) for label in labels]
    yes = names.index("entailment")
    no = next((at for at, label in enumerate(names) if label.startswith(("contra", "not"))), 1 - yes)
    for at, statement in ((0, "music train"), (2, "garden")):
        row = direct.logits(TEXT, statement)
        assert numbers(found.answers[at]) == pytest.approx(softmax([row[yes], row[no]])[:1], abs=1e-4)
    rows = [direct.logits(TEXT, f"bread {choice}.") for choice in ("letter", "true")]
    assert numbers(found.answers[1]) == pytest.approx(softmax([row[yes] for row in rows]), abs=1e-4)


async def test_a_conversation_is_read_with_its_speakers(open_: Open) -> None:
    model, direct = open_(["a", "b"])
    items = [{"role": "user", "content": "river"}, {"role": "assistant", "content": "stone"}]
    found = await model.answer(request_of(items, [("Which?", ["a", "b"])]))
    wanted = softmax(direct.logits("user: river\nassistant: stone"))
    assert numbers(found.answers[0]) == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("labels", [["a", "b"], ["entailment", "contradiction"]])
async def test_an_input_that_is_too_long_is_refused(labels: list[str], open_: Open) -> None:
    model, _ = open_(labels)
    with pytest.raises(InputTooLong, match="the model takes 64") as told:
        await model.answer(request_of("river " * 80, [("Which?", ["a", "b"])]))
    assert told.value.param == "input"


async def test_an_input_without_text_is_refused(open_: Open) -> None:
    model, _ = open_(["a", "b"])
    with pytest.raises(InvalidRequest, match="no text"):
        await model.answer(request_of([{"role": "user", "content": " "}], ["It is."]))


@pytest.mark.parametrize("labels", [["a", "b"], ["entailment", "contradiction"]])
async def test_megabytes_are_refused_before_they_are_tokenised(labels: list[str], open_: Open) -> None:
    model, _ = open_(labels)
    with pytest.raises(InputTooLong, match="more than 4096 characters, the model takes 64 tokens") as told:
        await model.answer(request_of("a" * 5_000_000, [("Which?", ["a", "b"])]))
    assert told.value.param == "input"


async def test_a_question_of_megabytes_is_refused(open_: Open) -> None:
    model, _ = open_(["entailment", "contradiction"])
    with pytest.raises(InputTooLong, match="more than 4096 characters") as told:
        await model.answer(request_of(TEXT, ["garden", ("Which?", ["a", "b" * 5000])]))
    assert told.value.param == "questions[1]"


def _break(model: TransformersDecide, word: str) -> None:
    """Make a word's weights no numbers, as an overflow in half precision does."""
    (token,) = model.model.tokenizer.bare(word)
    with torch.no_grad():
        model.model._encoder.model.get_input_embeddings().weight[token] = float("nan")


async def test_numbers_that_are_not_finite_are_a_refusal(open_: Open) -> None:
    model, _ = open_(["a", "b"])
    _break(model, "stone")
    found = await model.answer(request_of(TEXT, [("Which?", ["a", "b"]), ("Which?", ["b", "a"])]))
    assert found.answers == [RefusalAnswer(), RefusalAnswer()]
    fine = await model.answer(request_of("river light", [("Which?", ["a", "b"])]))
    assert isinstance(fine.answers[0], ChoiceAnswer)


async def test_only_the_question_without_finite_numbers_is_refused(open_: Open) -> None:
    model, direct = open_(["entailment", "contradiction"])
    _break(model, "bread")
    found = await model.answer(request_of(TEXT, ["garden", ("music", ["bread", "train"]), "letter"]))
    assert found.answers[1] == RefusalAnswer()
    for at, statement in ((0, "garden"), (2, "letter")):
        wanted = softmax(direct.logits(TEXT, statement))[:1]
        assert numbers(found.answers[at]) == pytest.approx(wanted, abs=1e-4)


def test_a_classifier_has_no_prior(open_: Open) -> None:
    with pytest.raises(LoadFailed, match=r"options\.prior is for chat models"):
        open_(["a", "b"], {"prior": True})
