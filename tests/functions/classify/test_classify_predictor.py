"""Tiny random classifiers in real architectures, against Transformers' text-classification pipeline, text by text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tinymodels import headed

from host.errors import LoadFailed, NotFinite, UnsupportedParameter

pytestmark = pytest.mark.anyio

TEXTS = ["river stone", "light", "number window garden paper winter music train bread letter", "stone river light"]
LABELS = ["sport", "science", "garden"]
KINDS = ["bert", "roberta", "distilbert", "xlm-roberta", "deberta-v2", "modernbert"]


def expected(pipe: Any, texts: list[str], labels: list[str], **more: Any) -> np.ndarray:
    """Return the pipeline's scores, (texts, labels)."""
    rows = [{entry["label"]: entry["score"] for entry in pipe(text, top_k=None, **more)} for text in texts]
    return np.array([[row[label] for label in labels] for row in rows])


def table(found: Any, labels: list[str]) -> np.ndarray:
    assert all(list(item.all_scores) == labels for item in found.data)
    return np.array([list(item.all_scores.values()) for item in found.data])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification", "regression", None])
async def test_scores_are_those_of_the_pipeline(
    opener: Any, ask: Any, pipeline: Any, tmp_path: Path, kind: str, problem: str | None
) -> None:
    labels = LABELS if problem != "regression" else ["stars"]
    headed(tmp_path, kind, "sequence", labels, problem_type=problem)
    found = await ask(opener(tmp_path, context=60), TEXTS)
    wanted = expected(pipeline("text-classification", tmp_path), TEXTS, labels)
    assert np.abs(table(found, labels) - wanted).max() < 1e-5
    assert [item.label for item in found.data] == [labels[at] for at in wanted.argmax(1)]
    assert np.allclose([item.score for item in found.data], wanted.max(1), atol=1e-5)
    assert np.ptp(wanted) > 1e-3, "the models say something of their own"


async def test_one_label_is_a_probability_of_its_own(opener: Any, ask: Any, pipeline: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", ["toxic"])
    made = opener(tmp_path)
    found = await ask(made, TEXTS)
    assert np.allclose(
        table(found, ["toxic"]), expected(pipeline("text-classification", tmp_path), TEXTS, ["toxic"]), atol=1e-5
    )
    assert made.info().detail["activation"] == "sigmoid"
    for item in found.data:
        assert (item.label, [entry.label for entry in item.labels]) == ("toxic", ["toxic"] if item.score >= 0.5 else [])


@pytest.mark.parametrize("activation", ["softmax", "sigmoid", "none"])
async def test_the_manifest_may_name_another_activation(
    opener: Any, ask: Any, pipeline: Any, tmp_path: Path, activation: str
) -> None:
    headed(tmp_path, "bert", "sequence", LABELS)
    found = await ask(opener(tmp_path, {"activation": activation}), TEXTS)
    wanted = expected(pipeline("text-classification", tmp_path), TEXTS, LABELS, function_to_apply=activation)
    assert np.allclose(table(found, LABELS), wanted, atol=1e-5)


@pytest.mark.parametrize("asked", ["softmax", "sigmoid", "none"])
@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification"])
async def test_a_request_may_name_another_function(
    opener: Any, ask: Any, pipeline: Any, tmp_path: Path, asked: str, problem: str
) -> None:
    headed(tmp_path, "bert", "sequence", LABELS, problem_type=problem)
    made = opener(tmp_path, {"threshold": 0.5})
    found = await ask(made, TEXTS, function_to_apply=asked)
    wanted = expected(pipeline("text-classification", tmp_path), TEXTS, LABELS, function_to_apply=asked)
    assert np.allclose(table(found, LABELS), wanted, atol=1e-5)
    for item in found.data:
        reach = [score for score in item.all_scores.values() if asked == "none" or score >= 0.5]
        assert [entry.score for entry in item.labels] == sorted(reach, reverse=True)
    with pytest.raises(UnsupportedParameter, match=r"own numbers: leave threshold out$") as caught:
        await ask(made, TEXTS, function_to_apply="none", threshold=0.5)
    assert caught.value.param == "threshold"


async def test_raw_scores_change_numbers_and_not_what_is_listed(
    opener: Any, ask: Any, pipeline: Any, tmp_path: Path
) -> None:
    headed(tmp_path, "bert", "sequence", LABELS, problem_type="multi_label_classification")
    made = opener(tmp_path)
    plain, raw = await ask(made, TEXTS), await ask(made, TEXTS, raw_scores=True)
    wanted = expected(pipeline("text-classification", tmp_path), TEXTS, LABELS, function_to_apply="none")
    assert np.allclose(table(raw, LABELS), wanted, atol=1e-5)
    for one, other in zip(plain.data, raw.data, strict=True):
        assert [entry.label for entry in one.labels] == [entry.label for entry in other.labels]
        assert other.labels == [entry for entry in other.labels if entry.score >= 0]


async def test_usage_counts_every_token(opener: Any, ask: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", LABELS)
    found = await ask(opener(tmp_path), TEXTS)
    assert found.usage.prompt_tokens == sum(len(text.split()) + 2 for text in TEXTS)
    assert [(item.index, item.windows, item.truncated) for item in found.data] == [(at, 1, False) for at in range(4)]


@pytest.mark.parametrize("top_k", [1, 2, 3, 9])
async def test_top_k_lists_the_best(opener: Any, ask: Any, tmp_path: Path, top_k: int) -> None:
    headed(tmp_path, "bert", "sequence", LABELS)
    for made, fields in (
        (opener(tmp_path), {"top_k": top_k}),
        (opener(tmp_path, {"top_k": top_k}), {}),
        (opener(tmp_path, {"top_k": 1}), {"top_k": top_k}),
    ):
        for item in (await ask(made, TEXTS, **fields)).data:
            scores = [entry.score for entry in item.labels]
            assert scores == sorted(item.all_scores.values(), reverse=True)[:top_k]
            assert (item.labels[0].label, item.labels[0].score) == (item.label, item.score)
            assert len(item.all_scores) == 3


async def test_thresholds_of_request_and_manifest(opener: Any, ask: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", LABELS, problem_type="multi_label_classification")
    scores = (await ask(opener(tmp_path), TEXTS[0])).data[0].all_scores
    ordered = sorted(scores, key=lambda label: -scores[label])
    middle = scores[ordered[1]]

    async def listed(options: dict[str, Any], **fields: Any) -> list[str]:
        return [entry.label for entry in (await ask(opener(tmp_path, options), TEXTS[0], **fields)).data[0].labels]

    assert await listed({}) == [label for label in ordered if scores[label] >= 0.5]
    assert await listed({}, threshold=0) == ordered
    assert await listed({}, threshold=middle - 1e-6) == ordered[:2]
    assert await listed({"threshold": middle + 1e-6}) == ordered[:1]
    assert await listed({"threshold": 1.0}, threshold=0.0) == ordered
    apart = {ordered[0]: 1.0, ordered[1]: 0.0, ordered[2]: 0.0}
    assert await listed({"threshold": apart}) == ordered[1:]
    assert await listed({"threshold": 1.0}, threshold=apart) == ordered[1:]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"threshold": {"sprot": 0.4}}, "no label `sprot`; did you mean `sport`"),
        ({"moderation": {"Garten": "hate"}}, "no label `Garten`; did you mean `garden`"),
        ({"moderation": {"xyz": "hate"}}, "known are: sport, science, garden"),
        ({"labels": ["a", "b"]}, "options.labels is for models of natural language inference"),
        ({"activation": "none", "threshold": 0.5}, "options.threshold needs probabilities"),
        ({"activation": "none", "moderation": {"sport": "hate"}}, "options.moderation needs probabilities"),
    ],
)
def test_options_that_do_not_suit_the_model_are_told(
    opener: Any, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    headed(tmp_path, "bert", "sequence", LABELS)
    with pytest.raises(LoadFailed, match=said):
        opener(tmp_path, options)


async def test_facts_say_what_was_chosen(opener: Any, tmp_path: Path) -> None:
    headed(tmp_path, "roberta", "sequence", LABELS)
    facts = opener(tmp_path).info()
    assert facts.context == 512
    assert facts.detail["labels"] == LABELS
    assert facts.detail["architecture"] == "RobertaForSequenceClassification"
    assert (facts.detail["activation"], facts.detail["zero_shot"], facts.detail["moderation"]) == ("softmax", False, [])


def test_a_label_that_stands_twice_is_refused(opener: Any, tmp_path: Path) -> None:
    """One of its two scores would be lost in `all_scores`."""
    headed(tmp_path, "bert", "sequence", ["sport", "garden", "sport"])
    with pytest.raises(LoadFailed, match="names the label `sport` twice"):
        opener(tmp_path)


@pytest.mark.parametrize(
    ("labels", "given", "fields", "index"),
    [
        (LABELS, ["river", "bread"], {}, 1),
        (LABELS, ["river " * 200, "stone", "stone bread"], {}, 2),
        (LABELS, ["river", ["stone", "bread"], "light"], {}, 1),
        (["contradiction", "entailment"], ["river", "stone", "bread"], {"labels": ["light", "garden"]}, 2),
    ],
)
async def test_a_text_that_spoils_the_numbers_is_named(
    opener: Any, ask: Any, tmp_path: Path, labels: list[str], given: list[Any], fields: dict[str, Any], index: int
) -> None:
    """By its own index, however many inputs are computed for it and for those before it."""
    headed(tmp_path, "bert", "sequence", labels)
    made = opener(tmp_path)
    table_ = made.model._encoder.model.bert.embeddings.word_embeddings.weight
    with torch.no_grad():
        table_[made.model.tokenizer.bare("bread")[0]] = float("nan")
    with pytest.raises(NotFinite, match=rf"^input\[{index}\]: the model gave numbers that are not finite") as caught:
        await ask(made, given, **fields)
    assert (caught.value.param, caught.value.extra) == (f"input[{index}]", {"index": index})
