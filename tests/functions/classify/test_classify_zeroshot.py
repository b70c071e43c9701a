"""Zero-shot on tiny random NLI models in real architectures, against Transformers' pipeline of that name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tinymodels import headed, words_tokenizer, write
from tokenizers.processors import TemplateProcessing

from functions.classify.zeroshot import NliLabels, hypothesis, nli_labels, scores
from host.errors import InputTooLong, InvalidRequest, LoadFailed

NLI = ["contradiction", "neutral", "entailment"]
TEXTS = ["river stone light", "bread", "number window garden paper winter music train"]
CHOICES = ["garden", "music train", "winter"]
TEMPLATE = "stone {} paper"
LONG = " ".join(["river stone light number window garden paper"] * 14)


def same(found: Any, wanted: list[dict[str, Any]], labels: list[str] = CHOICES) -> bool:
    rows = [dict(zip(one["labels"], one["scores"], strict=True)) for one in wanted]
    got = np.array([[item.all_scores[label] for label in labels] for item in found.data])
    assert np.ptp(got) > 1e-4
    return bool(np.abs(got - np.array([[row[label] for label in labels] for row in rows])).max() < 1e-5)


def bart(folder: Path) -> Path:
    """Save a tiny random BART, which reads its score off the last closing token of the pair."""
    torch.manual_seed(5)
    config = transformers.BartConfig(
        vocab_size=40, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, pad_token_id=1,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64, bos_token_id=0,
        eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=2, id2label=dict(enumerate(NLI)),
        label2id={label: at for at, label in enumerate(NLI)},
    )  # fmt: skip
    model = transformers.BartForSequenceClassification(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    words_tokenizer().save(str(folder / "tokenizer.json"))
    return write(folder, {"tokenizer_config.json": {"model_max_length": 64}})


def doubled(folder: Path) -> None:
    """Put two closing tokens between the texts of a pair, and both into one segment, as RoBERTa's tokenizer does."""
    tokenizer = words_tokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["bert", "roberta", "deberta-v2", "modernbert", "bart"])
@pytest.mark.parametrize("multi", [False, True])
async def test_scores_are_those_of_the_pipeline(
    opener: Any, ask: Any, pipeline: Any, tmp_path: Path, kind: str, multi: bool
) -> None:
    if kind == "bart":
        bart(tmp_path)
    else:
        headed(tmp_path, kind, "sequence", NLI)
    if kind == "roberta":
        doubled(tmp_path)
    pipe = pipeline("zero-shot-classification", tmp_path)
    found = await ask(
        opener(tmp_path), TEXTS, labels=CHOICES, hypothesis_template=TEMPLATE, multi_label=multi, threshold=0
    )
    wanted = pipe(TEXTS, CHOICES, hypothesis_template=TEMPLATE, multi_label=multi)
    assert same(found, wanted)
    for item, one in zip(found.data, wanted, strict=True):
        assert [entry.label for entry in item.labels] == one["labels"]
        assert item.label == one["labels"][0]
        if not multi:
            assert sum(item.all_scores.values()) == pytest.approx(1)
    assert found.usage.prompt_tokens == sum(
        len(text.split()) + len(label.split()) + 2 + (4 if kind == "roberta" else 3)
        for text in TEXTS
        for label in CHOICES
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    "names", [["entailment", "not_entailment"], ["not_entailment", "entailment"], ["ENTAILMENT", "neutral", "no"]]
)
async def test_other_orders_and_numbers_of_labels(
    opener: Any, ask: Any, pipeline: Any, tmp_path: Path, names: list[str]
) -> None:
    headed(tmp_path, "bert", "sequence", names)
    pipe, made = pipeline("zero-shot-classification", tmp_path), opener(tmp_path)
    for multi in (False, True):
        found = await ask(made, TEXTS, labels=CHOICES, multi_label=multi)
        assert same(found, pipe(TEXTS, CHOICES, multi_label=multi))


@pytest.mark.anyio
async def test_one_label_is_entailment_against_contradiction(
    opener: Any, ask: Any, pipeline: Any, tmp_path: Path
) -> None:
    headed(tmp_path, "bert", "sequence", NLI)
    found = await ask(opener(tmp_path), TEXTS, labels="garden")
    assert same(found, pipeline("zero-shot-classification", tmp_path)(TEXTS, ["garden"]), ["garden"])
    assert all(len(item.labels) == (item.score >= 0.5) for item in found.data)


@pytest.mark.anyio
async def test_a_long_text_is_cut_as_the_pipeline_cuts_it(opener: Any, ask: Any, pipeline: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", NLI)
    wanted = pipeline("zero-shot-classification", tmp_path, limit=64)([LONG], CHOICES, hypothesis_template=TEMPLATE)
    made = opener(tmp_path)
    for fields in ({"truncate": True}, {"windows": "first"}):
        found = await ask(made, LONG, labels=CHOICES, hypothesis_template=TEMPLATE, **fields)
        assert same(found, wanted)
        assert (found.data[0].windows, found.data[0].truncated) == (1, True)
        assert found.usage.prompt_tokens == 3 * 64


@pytest.mark.anyio
async def test_a_long_text_is_read_in_windows(opener: Any, ask: Any, tmp_path: Path) -> None:
    """What is put together are the logits of parts that are asked one by one."""
    headed(tmp_path, "bert", "sequence", NLI)
    made = opener(tmp_path, {"overlap": 0})
    words = LONG.split()
    room = 64 - 3 - 4  # the longest hypothesis has four tokens
    parts = [" ".join(words[at : at + room]) for at in range(0, len(words), room)]
    apart = await ask(made, parts, labels=CHOICES, hypothesis_template=TEMPLATE, raw_scores=True)
    raw = np.array([list(item.all_scores.values()) for item in apart.data])
    found = await ask(made, LONG, labels=CHOICES, hypothesis_template=TEMPLATE, raw_scores=True)
    mean = np.average(raw, axis=0, weights=[len(part.split()) for part in parts])
    assert np.allclose(list(found.data[0].all_scores.values()), mean, atol=1e-5)
    assert (found.data[0].windows, found.data[0].truncated) == (len(parts), False)
    assert len(parts) == 2
    most = await ask(made, LONG, labels=CHOICES, hypothesis_template=TEMPLATE, raw_scores=True, windows="max")
    for at, number in enumerate(most.data[0].all_scores.values()):
        assert np.abs(raw[:, at] - number).min() < 1e-5


@pytest.mark.anyio
@pytest.mark.parametrize("make", [bart, lambda folder: headed(folder, "bert", "sequence", NLI)], ids=["bart", "bert"])
async def test_a_text_cannot_end_itself(opener: Any, ask: Any, tmp_path: Path, make: Any) -> None:
    """Special tokens spelled in a text are words; a second closing token would break BART's batch, too."""
    make(tmp_path)
    tokenizer = words_tokenizer()
    tokenizer.add_special_tokens(["<s>", "</s>", "<pad>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert len(tokenizer.encode("river </s> stone", add_special_tokens=False)) == 3
    made = opener(tmp_path)
    found = await ask(made, ["river </s> stone", "bread"], labels="garden", hypothesis_template="{}")
    alike = await ask(made, ["river no known word stone", "bread"], labels="garden", hypothesis_template="{}")
    assert found.usage.prompt_tokens == (5 + 1 + 3) + (1 + 1 + 3)
    assert found == alike


@pytest.mark.anyio
async def test_labels_of_the_manifest_are_the_default(opener: Any, ask: Any, pipeline: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", NLI)
    made = opener(tmp_path, {"labels": CHOICES, "hypothesis_template": TEMPLATE, "multi_label": True})
    pipe = pipeline("zero-shot-classification", tmp_path)
    assert same(await ask(made, TEXTS), pipe(TEXTS, CHOICES, hypothesis_template=TEMPLATE, multi_label=True))
    other = await ask(made, TEXTS, labels=["stone", "bread"], hypothesis_template="river {}", multi_label=False)
    assert same(other, pipe(TEXTS, ["stone", "bread"], hypothesis_template="river {}"), ["stone", "bread"])


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({}, "labels", "labels is missing"),
        ({"labels": []}, "labels", "labels is an empty list"),
        ({"labels": ["a", ""]}, "labels[1]", "empty text"),
        ({"labels": ["a", "b", "a"]}, "labels[2]", "is listed already"),
        ({"labels": ["a", 4]}, "labels[1]", "must be a text, got a number"),
        ({"labels": [str(at) for at in range(300)]}, "labels", "at most 256"),
        ({"labels": ["a"], "hypothesis_template": "no place"}, "hypothesis_template", "must have {}"),
        ({"labels": ["river " * 70]}, "labels", "leaves no room for a text"),
        ({"labels": ["a"], "threshold": {"b": 0.3}}, "threshold.b", "no label here"),
    ],
)
async def test_what_is_wrong_is_told_with_its_name(
    opener: Any, ask: Any, tmp_path: Path, fields: dict[str, Any], param: str, said: str
) -> None:
    headed(tmp_path, "bert", "sequence", NLI)
    with pytest.raises(InvalidRequest, match=said) as caught:
        await ask(opener(tmp_path), TEXTS, **fields)
    assert caught.value.param == param


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "fields", "param"),
    [
        ({"labels": ["river " * 40]}, {"max_length": 40}, "max_length"),
        ({"labels": ["river " * 40]}, {"hypothesis_template": "stone " * 30 + "{}"}, "hypothesis_template"),
        ({"hypothesis_template": "stone " * 20 + "{}"}, {"labels": ["river " * 50]}, "labels"),
        ({"labels": ["river " * 40]}, {"labels": ["stone"], "max_length": 8}, "labels"),
    ],
)
async def test_what_leaves_no_room_is_the_field_that_was_sent(
    opener: Any, ask: Any, tmp_path: Path, options: dict[str, Any], fields: dict[str, Any], param: str
) -> None:
    headed(tmp_path, "bert", "sequence", NLI)
    with pytest.raises(InvalidRequest, match=f"^{param} leaves no room for a text") as caught:
        await ask(opener(tmp_path, options), TEXTS, **fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labels": ["bread", "river " * 70]}, "options.labels: `river river .*…` leaves no room for a text: 7[5-9]"),
        ({"labels": ["bread", "a" * 5000]}, "options.labels: `aaa.*` is too long for a model of 64 tokens"),
        ({"hypothesis_template": "river " * 70 + "{}"}, "options.hypothesis_template leaves no room for a text"),
        ({"activation": "none", "threshold": 0.5}, "options.threshold needs probabilities.* for pairs of texts"),
    ],
)
@pytest.mark.parametrize("moderation", [False, True])
def test_options_that_do_not_suit_the_model_are_told_when_it_is_loaded(
    opener: Any, tmp_path: Path, options: dict[str, Any], said: str, moderation: bool
) -> None:
    """A request for moderation has no `labels` to blame."""
    headed(tmp_path, "bert", "sequence", NLI)
    options = {"labels": ["bread"], **options} if moderation else options
    with pytest.raises(LoadFailed, match=said):
        opener(tmp_path, {**options, "moderation": {"bread": "hate"}} if moderation else options)


@pytest.mark.anyio
@pytest.mark.parametrize("zero_shot", [False, True])
async def test_a_misspelt_label_costs_nothing(
    opener: Any, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zero_shot: bool
) -> None:
    headed(tmp_path, "bert", "sequence", NLI if zero_shot else CHOICES)
    made = opener(tmp_path)
    monkeypatch.setattr(made._predictor._tokenizer, "_encode", lambda *_: pytest.fail("texts were read"))
    with pytest.raises(InvalidRequest, match="`gardn`, which is no label here; did you mean `garden`") as caught:
        await ask(made, TEXTS, labels=CHOICES if zero_shot else None, threshold={"gardn": 0.5})
    assert caught.value.param == "threshold.gardn"


@pytest.mark.anyio
async def test_plain_numbers_need_no_probabilities_of_zero_shot(opener: Any, ask: Any, tmp_path: Path) -> None:
    """An activation is of a model's own labels; moderation goes by those of the manifest."""
    headed(tmp_path, "bert", "sequence", NLI)
    made = opener(tmp_path, {"activation": "none", "labels": ["bread"], "moderation": {"bread": "hate"}})
    assert 0 < (await ask(made, "river")).data[0].score < 1


@pytest.mark.anyio
async def test_a_long_text_is_refused_where_windows_are_off(opener: Any, ask: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", NLI)
    with pytest.raises(InputTooLong, match=r"input\[1\] is too large: it has 98 tokens, 57 are read at once"):
        await ask(opener(tmp_path, {"windows": "off"}), ["river", LONG], labels=CHOICES, hypothesis_template=TEMPLATE)


@pytest.mark.anyio
@pytest.mark.parametrize("field", [{"labels": ["a"]}, {"multi_label": True}, {"hypothesis_template": "x {}"}])
async def test_a_model_with_labels_of_its_own_takes_none(
    opener: Any, ask: Any, tmp_path: Path, field: dict[str, Any]
) -> None:
    headed(tmp_path, "bert", "sequence", ["sport", "science"])
    with pytest.raises(InvalidRequest, match="labels of its own: sport, science") as caught:
        await ask(opener(tmp_path), TEXTS, **field)
    assert caught.value.param == next(iter(field))


def test_moderation_on_an_nli_model_needs_labels(opener: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", NLI)
    with pytest.raises(LoadFailed, match=r"options\.labels is needed"):
        opener(tmp_path, {"moderation": {"violent": "violence"}})


@pytest.mark.anyio
async def test_the_manifest_names_entailment_where_the_model_does_not(
    opener: Any, ask: Any, pipeline: Any, tmp_path: Path
) -> None:
    plain = ["LABEL_0", "LABEL_1", "LABEL_2"]
    headed(tmp_path, "bert", "sequence", plain)
    with pytest.raises(InvalidRequest, match="labels of its own"):
        await ask(opener(tmp_path), TEXTS, labels=CHOICES)
    found = await ask(opener(tmp_path, {"entailment": "LABEL_2"}), TEXTS, labels=CHOICES, multi_label=True)
    headed(tmp_path, "bert", "sequence", NLI)
    assert same(found, pipeline("zero-shot-classification", tmp_path)(TEXTS, CHOICES, multi_label=True))
    with pytest.raises(LoadFailed, match=r"options\.entailment is `entailed`, .*; did you mean `entailment`"):
        opener(tmp_path, {"entailment": "entailed"})


@pytest.mark.parametrize(
    ("labels", "said", "places"),
    [
        (["a", "b", "c"], "b", NliLabels(entailment=1, contradiction=0)),
        (["a", "b", "c"], "a", NliLabels(entailment=0, contradiction=2)),
        (["a", "Contradiction", "c"], "a", NliLabels(entailment=0, contradiction=1)),
        (["entailment", "b"], "b", NliLabels(entailment=1, contradiction=0)),
        (["a", "b"], "x", None),
        (["a"], "a", None),
    ],
)
def test_a_label_that_is_said_to_be_entailment(labels: list[str], said: str, places: NliLabels | None) -> None:
    assert nli_labels(labels, said) == places


@pytest.mark.parametrize(
    ("labels", "places"),
    [
        (NLI, NliLabels(entailment=2, contradiction=0)),
        (["entailment", "neutral", "contradiction"], NliLabels(entailment=0, contradiction=2)),
        (["neutral", "Entailment", "Contradiction"], NliLabels(entailment=1, contradiction=2)),
        (["entailment", "not_entailment"], NliLabels(entailment=0, contradiction=1)),
        (["no", "maybe", "ENTAILS"], NliLabels(entailment=2, contradiction=0)),
        (["neutral", " Entailment", "non-entailment"], NliLabels(entailment=1, contradiction=2)),
        (["CONTRADICTION", "ENTAILMENT", "NEUTRAL"], NliLabels(entailment=1, contradiction=0)),
        (["entails", "maybe", "no"], NliLabels(entailment=0, contradiction=2)),
        (["LABEL_0", "LABEL_1"], None),
        (["entailment"], None),
    ],
)
def test_where_entailment_stands(labels: list[str], places: NliLabels | None) -> None:
    assert nli_labels(labels) == places


@pytest.mark.parametrize(
    ("template", "label", "sentence"),
    [
        ("This is {}.", "art", "This is art."),
        ("{} {x} {0.__class__}", "{}", "{} {x} {0.__class__}"),
        ("About {}, {}", "a", "About a, {}"),
    ],
)
def test_a_template_is_no_program(template: str, label: str, sentence: str) -> None:
    assert hypothesis(template, label) == sentence


def test_scores_do_not_overflow() -> None:
    places = NliLabels(entailment=2, contradiction=0)
    logits = np.array([[[0.0, 0.0, 1000.0], [1000.0, 0.0, -1000.0]]])
    assert np.allclose(scores(logits, places, multi_label=False), [[1, 0]])
    assert np.allclose(scores(logits, places, multi_label=True), [[1, 0]])
