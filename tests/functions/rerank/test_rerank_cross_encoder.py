"""Cross-encoders against sentence-transformers' own on the same random weights, and what labels are taken to mean."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from rerankers import Opener, ask, decoder, qwen_text
from sentence_transformers import CrossEncoder
from tinymodels import headed, tiny, words_tokenizer

from functions.rerank.options import RerankOptions
from host.errors import InputTooLong, InvalidRequest, LoadFailed, NotFinite, UnsupportedParameter

pytestmark = pytest.mark.anyio

QUERY = "river light"
DOCUMENTS = [
    "stone",
    "light river window garden",
    "paper winter music train bread letter number",
    "bread bread bread",
    "window light",
    "letter garden river stone light number window garden paper winter music train",
]
KINDS = ["bert", "roberta", "xlm-roberta", "modernbert", "deberta-v2", "distilbert"]


def save_tokenizer(folder: Path) -> None:
    """Save the words of the tiny tokenizer as Transformers reads them."""
    config = json.loads((folder / "config.json").read_text())
    typed = ["token_type_ids"] if config["model_type"] == "bert" else []
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words_tokenizer(),
        pad_token="<pad>",
        model_max_length=60,
        model_input_names=["input_ids", *typed, "attention_mask"],
    ).save_pretrained(folder)


def reference(folder: Path, query: str, documents: list[str]) -> np.ndarray:
    """What `CrossEncoder.predict` says."""
    save_tokenizer(folder)
    model = CrossEncoder(str(folder), device="cpu", local_files_only=True)
    return model.predict([(query, document) for document in documents], show_progress_bar=False)


@pytest.mark.parametrize("kind", KINDS)
async def test_scores_are_those_of_sentence_transformers(opener: Opener, tmp_path: Path, kind: str) -> None:
    folder = headed(tmp_path, kind, "sequence", ["LABEL_0"])
    found = await ask(opener(folder, context=60), QUERY, DOCUMENTS)
    expected = reference(folder, QUERY, DOCUMENTS)
    assert np.allclose(found.scores, expected, atol=1e-4)
    assert np.std(expected) > 1e-3 and 0 < min(found.scores) < max(found.scores) < 1
    assert found.truncated == []


@pytest.mark.parametrize("place", ["sentence_transformers", "sbert_ce_default_activation_function", "settings"])
@pytest.mark.parametrize("kind", ["Identity", "Sigmoid"])
async def test_the_files_name_the_activation(opener: Opener, tmp_path: Path, place: str, kind: str) -> None:
    folder = headed(tmp_path, "bert", "sequence", ["LABEL_0"])
    path = f"torch.nn.modules.{'linear' if kind == 'Identity' else 'activation'}.{kind}"
    if place == "settings":
        save_tokenizer(folder)
        saved = CrossEncoder(str(folder), device="cpu", local_files_only=True, activation_fn=getattr(torch.nn, kind)())
        saved.save_pretrained(str(folder))
        assert json.loads((folder / "config_sentence_transformers.json").read_text())["activation_fn"] == path
    else:
        config = json.loads((folder / "config.json").read_text())
        config[place] = {"activation_fn": path, "version": "5.0"} if place == "sentence_transformers" else path
        (folder / "config.json").write_text(json.dumps(config))
    found = await ask(opener(folder, context=60), QUERY, DOCUMENTS)
    raw = await ask(opener(folder, context=60), QUERY, DOCUMENTS, raw_scores=True)
    assert np.allclose(found.scores, reference(folder, QUERY, DOCUMENTS), atol=1e-4)
    assert (found.scores == raw.scores) is (kind == "Identity")


async def test_the_manifest_names_the_activation(opener: Opener, tmp_path: Path) -> None:
    folder = headed(tmp_path, "bert", "sequence", ["x"], sbert_ce_default_activation_function="torch.nn.Tanh")
    with pytest.raises(LoadFailed, match=r"options\.activation"):
        opener(folder)
    sigmoid = await ask(opener(folder, {"activation": "sigmoid"}), QUERY, DOCUMENTS)
    raw = await ask(opener(folder, {"activation": "identity"}), QUERY, DOCUMENTS)
    assert np.allclose(sigmoid.scores, 1 / (1 + np.exp(-np.array(raw.scores))), atol=1e-6)


@pytest.mark.parametrize(
    ("labels", "options", "at"),
    [
        (["contradiction", "entailment", "neutral"], {}, 1),
        (["irrelevant", "relevant"], {}, 1),
        (["yes", "no"], {}, 0),
        (["LABEL_0", "LABEL_1"], {}, 1),
        (["bad", "good"], {"label": "good"}, 1),
        (["relevant", "perfect"], {"label": "PERFECT"}, 1),
    ],
)
async def test_the_relevant_label_of_several(
    opener: Opener, tmp_path: Path, labels: list[str], options: dict[str, Any], at: int
) -> None:
    folder = headed(tmp_path, "roberta", "sequence", labels)
    instance = opener(folder, options, context=60)
    logits = reference(folder, QUERY, DOCUMENTS)
    shares = torch.softmax(torch.tensor(logits), 1)[:, at]
    assert np.allclose((await ask(instance, QUERY, DOCUMENTS)).scores, shares, atol=1e-4)
    assert np.allclose((await ask(instance, QUERY, DOCUMENTS, raw_scores=True)).scores, logits[:, at], atol=1e-4)


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        (["bad", "good"], {}, "which of the labels bad, good means relevant is not known: set options.label"),
        (["LABEL_0", "LABEL_1", "LABEL_2"], {}, "set options.label"),
        (["bad", "good"], {"label": "best"}, "no label 'best'; it has bad, good"),
    ],
)
async def test_labels_that_say_nothing(
    opener: Opener, tmp_path: Path, labels: list[str], options: dict[str, Any], words: str
) -> None:
    folder = headed(tmp_path, "bert", "sequence", labels)
    with pytest.raises(LoadFailed, match=words):
        opener(folder, options)


async def test_usage_counts_the_tokens_of_pairs(opener: Opener, tmp_path: Path) -> None:
    folder = headed(tmp_path, "bert", "sequence", ["x"])
    found = await ask(opener(folder), QUERY, DOCUMENTS)
    words = words_tokenizer()
    assert found.usage.prompt_tokens == sum(len(words.encode(QUERY, document).ids) for document in DOCUMENTS)


async def test_many_askers_get_their_own(opener: Opener, tmp_path: Path) -> None:
    instance = opener(headed(tmp_path, "bert", "sequence", ["x"]))
    queries = ["river", "stone light", "paper winter music", "bread"] * 4
    alone = [(await ask(instance, query, DOCUMENTS)).scores for query in queries[:4]] * 4
    together = await asyncio.gather(*(ask(instance, query, DOCUMENTS) for query in queries))
    for found, expected in zip(together, alone, strict=True):
        assert np.allclose(found.scores, expected, atol=1e-5)


async def test_a_thousand_documents(opener: Opener, tmp_path: Path) -> None:
    instance = opener(headed(tmp_path, "bert", "sequence", ["x"]))
    found = await ask(instance, QUERY, DOCUMENTS * 250)
    assert len(found.scores) == 1500
    assert np.allclose(found.scores, (await ask(instance, QUERY, DOCUMENTS)).scores * 250, atol=1e-5)


LONG = " ".join(["river stone light number window garden paper winter music train bread letter"] * 8)


async def test_too_long_is_refused_cut_or_read_in_pieces(opener: Opener, tmp_path: Path) -> None:
    folder = headed(tmp_path, "bert", "sequence", ["x"])
    instance = opener(folder)
    room = 64 - 5
    words = LONG.split()
    with pytest.raises(InputTooLong, match=r"documents\[1\] is too large: with the query it has 101 tokens") as caught:
        await ask(instance, QUERY, ["stone", LONG])
    assert caught.value.param == "documents[1]" and caught.value.extra == {"n_prompt_tokens": 101, "n_ctx": 64}
    cut = await ask(instance, QUERY, ["stone", LONG], truncate=True)
    shorter = await ask(instance, QUERY, ["stone", " ".join(words[:room])])
    assert np.allclose(cut.scores, shorter.scores, atol=1e-6) and cut.truncated == [1] and shorter.truncated == []
    pieces = await ask(instance, QUERY, ["stone", LONG], max_chunks_per_doc=9)
    step = room - room // 8
    own = [" ".join(words[start : start + room]) for start in (0, step)]
    each = (await ask(instance, QUERY, own)).scores
    assert pieces.scores[1] == pytest.approx(max(each), abs=1e-6) and pieces.truncated == []
    one = await ask(instance, QUERY, ["stone", LONG], max_chunks_per_doc=1)
    assert np.allclose(one.scores, cut.scores, atol=1e-6) and one.truncated == [1]


async def test_max_tokens_per_doc(opener: Opener, tmp_path: Path) -> None:
    instance = opener(headed(tmp_path, "bert", "sequence", ["x"]))
    found = await ask(instance, QUERY, ["river stone light number", LONG], max_tokens_per_doc=2)
    assert found.scores[0] == pytest.approx(found.scores[1], abs=1e-6) and found.truncated == [0, 1]
    with pytest.raises(InputTooLong):
        await ask(instance, QUERY, [LONG], max_tokens_per_doc=80)
    pieces = await ask(instance, QUERY, ["river stone light number"], max_tokens_per_doc=2, max_chunks_per_doc=4)
    each = await ask(instance, QUERY, ["river stone", "light number"])
    assert pieces.scores[0] == pytest.approx(max(each.scores), abs=1e-6)


async def test_the_manifest_cuts_or_chunks(opener: Opener, tmp_path: Path) -> None:
    folder = headed(tmp_path, "bert", "sequence", ["x"])
    cutting, chunking = opener(folder, {"truncate": True}), opener(folder, {"chunks": 4})
    assert (await ask(cutting, QUERY, [LONG])).truncated == [0]
    assert (await ask(chunking, QUERY, [LONG])).truncated == []
    with pytest.raises(InputTooLong):
        await ask(cutting, QUERY, [LONG], truncate=False)


async def test_a_query_that_leaves_no_room(opener: Opener, tmp_path: Path) -> None:
    instance = opener(headed(tmp_path, "bert", "sequence", ["x"]))
    with pytest.raises(InputTooLong, match="query is too large: 99 tokens") as caught:
        await ask(instance, LONG, ["stone"], truncate=True)
    assert caught.value.param == "query"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"query": " "}, "query"),
        ({"documents": []}, "documents"),
        ({"documents": ["a", " \n"]}, "documents[1]"),
        ({"documents": ["a", " "], "field": "texts"}, "texts[1]"),
        ({"documents": ["a"] * 10_001}, "documents"),
        ({"max_tokens_per_doc": 0}, "max_tokens_per_doc"),
        ({"max_chunks_per_doc": -1}, "max_chunks_per_doc"),
    ],
)
async def test_what_is_wrong_is_named(opener: Opener, tmp_path: Path, fields: dict[str, Any], param: str) -> None:
    instance = opener(headed(tmp_path, "bert", "sequence", ["x"]))
    with pytest.raises(InvalidRequest) as caught:
        await ask(instance, **({"query": "river", "documents": ["stone"]} | fields))
    assert caught.value.param == param


async def test_an_instruction_needs_a_place(opener: Opener, tmp_path: Path) -> None:
    folder = headed(tmp_path, "bert", "sequence", ["x"])
    with pytest.raises(UnsupportedParameter, match="instruction"):
        await ask(opener(folder), QUERY, DOCUMENTS, instruction="winter")
    placed = opener(folder, {"prompt": "paper {instruction} music {query} letter {document}"})
    found = await ask(placed, QUERY, DOCUMENTS, instruction="winter")
    words, model = words_tokenizer(), transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        for document, score in zip(DOCUMENTS, found.scores, strict=True):
            text = f"paper winter music {QUERY} letter {document}"
            ids = [0, *words.encode(text, add_special_tokens=False).ids]
            assert score == pytest.approx(torch.sigmoid(model(torch.tensor([ids])).logits)[0, 0].item(), abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "words"), [("bert", r"options\.method: cosine"), ("roberta", r"options\.method: cosine")]
)
async def test_an_encoder_without_a_head_is_refused(opener: Opener, tmp_path: Path, kind: str, words: str) -> None:
    with pytest.raises(LoadFailed, match=words):
        opener(tiny(tmp_path, kind))


async def test_a_missing_classifier_is_refused(opener: Opener, tmp_path: Path) -> None:
    folder = tiny(tmp_path, "bert")
    with pytest.raises(LoadFailed, match=r"no classification head \(BertModel lacks classifier.*task: embeddings"):
        opener(folder, {"method": "cross_encoder"})


async def test_weights_that_are_missing_below_a_head_are_named(opener: Opener, tmp_path: Path) -> None:
    folder = headed(tmp_path, "bert", "sequence", ["x"])
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.weight"]
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LoadFailed, match=r"lack weights that BertForSequenceClassification needs: bert\.encoder"):
        opener(folder)


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ("BertModel", "embeds texts .*options.method: cosine.*task: embeddings"),
        ("BertForMaskedLM", "embeds texts .*config.json: BertForMaskedLM"),
        ("BertForTokenClassification", "labels tokens .*task: ner"),
        ("T5ForConditionalGeneration", "writes texts .*cross-encoder"),
        (None, "config.json names no architecture"),
    ],
)
def test_what_is_no_reranker_is_refused_with_what_it_is(
    opener: Opener, tmp_path: Path, architecture: str | None, words: str
) -> None:
    folder = tiny(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = [architecture] if architecture else None
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(LoadFailed, match=words):
        opener(folder)


def spoilt(folder: Path, word: str) -> Path:
    """Make a word's embedding not finite."""
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    (name,) = (name for name in weights if name.endswith("word_embeddings.weight"))
    weights[name][words_tokenizer().token_to_id(word)] = float("nan")
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


async def test_a_document_that_spoils_the_numbers_is_named(opener: Opener, tmp_path: Path) -> None:
    instance = opener(spoilt(headed(tmp_path, "bert", "sequence", ["x"]), "stone"))
    documents = ["river " * 200, "light", "garden stone", "winter"]
    with pytest.raises(NotFinite, match=r"documents\[2\]: .*not finite") as caught:
        await ask(instance, QUERY, documents, max_chunks_per_doc=9)
    assert caught.value.param == "documents[2]" and caught.value.extra == {"index": 2}
    assert len((await ask(instance, QUERY, documents[3:])).scores) == 1


async def test_labels_that_go_together_have_a_share_each(opener: Opener, tmp_path: Path) -> None:
    labels = ["irrelevant", "relevant", "rude"]
    folder = headed(tmp_path, "bert", "sequence", labels, problem_type="multi_label_classification")
    logits = reference(folder, QUERY, DOCUMENTS)[:, 1]
    found = await ask(opener(folder, context=60), QUERY, DOCUMENTS)
    assert np.allclose(found.scores, 1 / (1 + np.exp(-logits)), atol=1e-4)


async def test_texts_without_a_token_are_ranked_too(opener: Opener, tmp_path: Path) -> None:
    """A zero-width space is no white space to Python, and nothing to many tokenizers."""
    instance = opener(headed(tmp_path, "bert", "sequence", ["x"]))
    found = await ask(instance, "\u200b", ["\u200b", "\0", "stone", "stone"])
    assert all(0 < score < 1 for score in found.scores)
    assert found.scores[2] == pytest.approx(found.scores[3], abs=1e-6)


async def test_qwen3_with_a_head_reads_its_prompt(opener: Opener, tmp_path: Path) -> None:
    """As `tomaarsen/Qwen3-Reranker-0.6B-seq-cls` is used: one label, the whole prompt as one text."""
    folder = decoder(tmp_path, head=1)
    instance = opener(folder)
    found = await ask(instance, "where is the river", ["Paris", "light falls on the river", "stone"] * 3)
    tokens = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        for document, score in zip(["Paris", "light falls on the river", "stone"], found.scores, strict=False):
            ids = tokens(qwen_text("where is the river", document), return_tensors="pt")["input_ids"]
            assert score == pytest.approx(torch.sigmoid(model(ids).logits)[0, 0].item(), abs=1e-4)
    assert instance.info().detail["prompted"] is True


async def test_megabytes_are_cut_or_refused_before_they_are_tokenised(opener: Opener, tmp_path: Path) -> None:
    instance = opener(headed(tmp_path, "bert", "sequence", ["LABEL_0"]), context=60)
    huge = "a" * 5_000_000
    with pytest.raises(InputTooLong, match=r"documents\[1\] .* more than 3840 characters.*truncate: true") as caught:
        await ask(instance, QUERY, ["stone", huge])
    assert caught.value.param == "documents[1]"
    with pytest.raises(InputTooLong, match="query is too large: it has more than 3840 characters") as caught:
        await ask(instance, huge, ["stone"], truncate=True)
    assert caught.value.param == "query"
    for fields in ({"truncate": True}, {"max_chunks_per_doc": 2}, {"max_tokens_per_doc": 5}):
        found = await ask(instance, QUERY, ["stone", huge, "light " * 1_000_000], **fields)
        assert found.truncated == [1, 2]
        assert found.usage.prompt_tokens <= 5 * 60


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("only {query}", "{document} must occur exactly once"),
        ("{document} then {query}", "{query} must come before {document}"),
        ("{query} {document} {instruction}", "{instruction} must come before {document}"),
    ],
)
def test_a_prompt_without_its_places_is_no_option(prompt: str, said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.convert({"prompt": prompt}, RerankOptions)
