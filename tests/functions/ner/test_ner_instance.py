"""What is refused when a model is loaded, what a manifest may say, and what requests may ask of a loaded model."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tinymodels

from functions.ner.api import NerRequest
from functions.ner.instance import NerInstance
from host.errors import InputTooLong, InvalidRequest, LoadFailed, ManifestError, NotFinite

pytestmark = pytest.mark.anyio

Opener = Callable[..., NerInstance]
Tiny = Callable[..., Path]
TEXT = "Clara Barton lives in Berkeley California"


def test_a_head_for_whole_texts_is_refused(tmp_path: Path, opener: Opener) -> None:
    path = tinymodels.headed(tmp_path, "distilbert", "sequence", ["no", "yes"])
    config = json.loads((path / "config.json").read_text())
    assert config["architectures"] == ["DistilBertForSequenceClassification"]
    with pytest.raises(LoadFailed, match="task: classify"):
        opener(path)


def test_labels_that_say_nothing_are_refused_and_can_be_named(tiny: Tiny, opener: Opener) -> None:
    path = tiny("bert", ("LABEL_0",))
    with pytest.raises(LoadFailed, match="id2label"):
        opener(path)
    assert opener(path, {"rename": {"LABEL_0": "B-PER"}}).info().detail["labels"] == ["PER"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rename": {"B-DOG": "B-CAT"}}, "no label 'B-DOG'"),
        ({"redaction": "[{kind}]"}, "{kind}, which is not known"),
        ({"redaction": ""}, "redaction"),
        ({"threshold": 2}, "threshold"),
        ({"aggregation_strategy": "none"}, "aggregation_strategy"),
        ({"stride": -1}, "stride"),
        ({"labels": ["PER"]}, "labels"),
    ],
)
def test_wrong_options_are_reported(tiny: Tiny, opener: Opener, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        opener(tiny("bert"), options)


def test_a_context_without_room_is_refused(tiny: Tiny, opener: Opener) -> None:
    with pytest.raises(LoadFailed, match="more than the 2 special tokens"):
        opener(tiny("bert"), context=2)


def test_facts(tiny: Tiny, opener: Opener) -> None:
    facts = opener(tiny("bert", ("O", "B-P", "I-P", "E-P", "S-P")), {"stride": 7}).info()
    assert facts.context == 64
    detail = facts.detail
    assert (detail["labels"], detail["tags"], detail["stride"]) == (["P"], "BIOES", 7)


async def test_the_answer_says_the_models_name_where_the_request_does_not(tiny: Tiny, opener: Opener) -> None:
    made = opener(tiny("bert"))
    assert (await made.answer(NerRequest(input=TEXT))).model == made.name != ""


async def test_the_manifest_says_what_requests_do_not(tiny: Tiny, opener: Opener) -> None:
    said = {"aggregation_strategy": "average", "threshold": 0.25, "redaction": "<{label}>"}
    plain, told = opener(tiny("bert")), opener(tiny("bert"), said)
    texts = [TEXT, "the quick brown fox jumps over the lazy dog", "My name is Wolfgang , near the river Spree"]
    explicit = NerRequest(model="m", input=texts, redact=True, **said)  # type: ignore[arg-type]
    expected = await plain.answer(explicit)
    assert await told.answer(NerRequest(model="m", input=texts, redact=True)) == expected
    assert "<" in "".join(found.redacted_text or "" for found in expected.data)
    free = NerRequest(model="m", input=TEXT, threshold=0, aggregation_strategy="simple")
    assert await told.answer(free) == await plain.answer(NerRequest(model="m", input=TEXT))
    kept = (await told.answer(NerRequest(model="m", input=TEXT, redact=False))).data[0]
    assert kept.redacted_text is None


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"labels": ["PER", "DOG"]}, "labels[1]", "'DOG', which this model does not find; it finds: LOC, PER"),
        ({"labels": ["B-PER"]}, "labels[0]", "it finds"),
        ({"stride": 32}, "stride", "half of a window, which is 31 tokens here"),
        ({"stride": 4, "max_length": 9}, "stride", "which is 3 tokens"),
        ({"max_length": 65}, "max_length", "max_length is 65, the model takes 64 tokens"),
        ({"max_length": 2}, "max_length", "more than the 2 special tokens"),
    ],
)
async def test_what_the_model_cannot_do_is_reported(
    tiny: Tiny, opener: Opener, fields: dict[str, Any], param: str, said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        await opener(tiny("bert")).answer(NerRequest(model="m", input=TEXT, **fields))
    assert caught.value.param == param


async def test_no_prefix_is_left_where_no_entity_begins(tmp_path: Path, tiny: Tiny, opener: Opener) -> None:
    """A model that has I- alone, or only ever says I-: types are told without it."""
    path = shutil.copytree(tiny("bert"), tmp_path / "io")
    config = json.loads((path / "config.json").read_text())
    config["id2label"] = {"0": "I-ORG", "1": "I-GIVEN-NAME", "2": "O", "3": "I-LOC", "4": "I-PER"}
    config["label2id"] = {label: int(at) for at, label in config["id2label"].items()}
    (path / "config.json").write_text(json.dumps(config))
    answer = await opener(path).answer(NerRequest(model="m", input=[TEXT] * 2 + ["the lazy dog , in Berlin"]))
    labels = {entity.label for found in answer.data for entity in found.entities}
    assert labels
    assert labels <= {"ORG", "GIVEN-NAME", "LOC", "PER"}


@pytest.mark.parametrize(
    ("given", "param", "said"),
    [
        ("中" * 3_000_000, "input", "more than 262144 tokens; send it in parts"),
        ([TEXT, "! " * 3_000_000], "input[1]", "more than 262144 tokens; send it in parts"),
        ("a" * 17_000_000, "input", "more than 16777216 characters"),
    ],
)
async def test_megabytes_are_refused(tiny: Tiny, opener: Opener, given: Any, param: str, said: str) -> None:
    with pytest.raises(InputTooLong, match=said) as caught:
        await opener(tiny("bert")).answer(NerRequest(model="m", input=given))
    assert caught.value.param == param


async def test_windows_without_number_are_refused(tiny: Tiny, opener: Opener) -> None:
    request = NerRequest(model="m", texts=[TEXT, f"{TEXT} " * 4000], max_length=3)
    with pytest.raises(
        InvalidRequest, match=r"^texts\[1\] makes \d+ windows of 1 tokens, 16384 are computed"
    ) as caught:
        await opener(tiny("bert")).answer(request)
    assert caught.value.param == "texts[1]"


@pytest.mark.parametrize("stride", [None, 0, 31])
async def test_a_request_in_groups_is_answered_as_its_texts_are_one_by_one(
    tiny: Tiny, opener: Opener, monkeypatch: pytest.MonkeyPatch, stride: int | None
) -> None:
    instance = opener(tiny("bert"))
    texts = [TEXT, "", "the quick brown fox", f"{TEXT}. " * 30, "Wolfgang", " ", f"{TEXT}, " * 3]
    monkeypatch.setattr("functions.ner.tokenize._GROUP", 12)
    monkeypatch.setattr("functions.ner.aggregation._SLICE", 5)
    together = await instance.answer(NerRequest(model="m", input=texts, redaction="<{label}{n}>", stride=stride))
    assert [found.index for found in together.data] == list(range(len(texts)))
    monkeypatch.undo()
    whole = await instance.answer(NerRequest(model="m", input=texts, redaction="<{label}{n}>", stride=stride))
    assert together.usage == whole.usage
    for ours, theirs in zip(together.data, whole.data, strict=True):
        assert ours.redacted_text == theirs.redacted_text
        assert [(e.start, e.end, e.label) for e in ours.entities] == [
            (e.start, e.end, e.label) for e in theirs.entities
        ]
    assert sum(len(found.entities) for found in whole.data) > 20


async def test_spoilt_numbers_name_their_text(tiny: Tiny, opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bad text has two windows before it and is its request's; the request beside it is answered."""
    instance = opener(tiny("bert"))
    (bad,) = instance.model.tokenizer.bare("spree")[:1]
    headed: Any = instance.model
    real = headed._batcher._compute

    def compute(items: Any) -> Any:
        if any(bad in item.ids for item in items):
            raise NotFinite("the model gave numbers that are not finite in fp32")
        return real(items)

    monkeypatch.setattr(headed._batcher, "_compute", compute)
    wrong = NerRequest(model="m", texts=[TEXT, f"{TEXT} " * 20, "the river Spree", TEXT])
    right = NerRequest(model="m", texts=[TEXT, TEXT])
    told, answer = await asyncio.gather(instance.answer(wrong), instance.answer(right), return_exceptions=True)
    assert isinstance(told, NotFinite)
    assert (told.param, told.message) == ("texts[2]", "texts[2]: the model gave numbers that are not finite in fp32")
    assert len(answer.data) == 2  # type: ignore[union-attr]
