"""Classifiers as GGUF files on llama.cpp, against Transformers on the weights they were made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

pytest.importorskip("llama_cpp")
pytest.importorskip("gguf")

from ggufs.bert import convert
from ggufs.tiny import cross_encoder

from functions.classify.api import ModerationRequest
from functions.engines.batching import text_split_points
from host.errors import LoadFailed

pytestmark = pytest.mark.anyio

LABELS = ["sport", "science", "garden"]
NLI = ["contradiction", "neutral", "entailment"]
TEXTS = ["river stone, light", "number of the window", "music and winter"]


def logits(folder: Path, texts: list[str]) -> np.ndarray:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    with torch.no_grad():
        return np.stack([model(**tokenizer(text, return_tensors="pt")).logits[0].numpy() for text in texts])


def file(folder: Path, labels: list[str], **more: Any) -> Path:
    cross_encoder(folder, labels=max(1, len(labels)))
    return convert(folder, folder / "model.gguf", pooling="rank", labels=labels, **more)


async def test_scores_are_those_of_transformers(opener: Any, ask: Any, tmp_path: Path) -> None:
    made = opener(file(tmp_path, LABELS), engine="llama")
    raw = logits(tmp_path, TEXTS)
    found = await ask(made, TEXTS)
    wanted = np.exp(raw) / np.exp(raw).sum(1, keepdims=True)
    assert np.allclose([list(item.all_scores.values()) for item in found.data], wanted, atol=1e-3)
    assert [item.label for item in found.data] == [LABELS[at] for at in wanted.argmax(1)]
    assert np.ptp(wanted) > 0.01
    assert made.info().detail["labels"] == LABELS
    apart = await ask(opener(tmp_path / "model.gguf", {"activation": "sigmoid"}, engine="llama"), TEXTS)
    sigmoid = 1 / (1 + np.exp(-raw))
    assert np.allclose([list(item.all_scores.values()) for item in apart.data], sigmoid, atol=1e-3)


async def test_a_text_of_many_parts_is_read_as_a_whole(
    opener: Any, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "river stone, light number\n" * 50
    whole = await ask(opener(file(tmp_path, LABELS), engine="llama"), long)
    monkeypatch.setattr(text_split_points, "PART", 60)
    made = opener(tmp_path / "model.gguf", engine="llama")
    place = await made._predictor._tokenizer._tokenizer._split_pattern()
    assert place is not None
    assert len(list(text_split_points.parts(long, place))) > 15
    assert await ask(made, long) == whole


async def test_a_long_text_is_read_in_windows(opener: Any, ask: Any, tmp_path: Path) -> None:
    made = opener(file(tmp_path, LABELS), {"overlap": 0}, engine="llama")
    words = " ".join(["river stone light number"] * 50).split()
    parts = [" ".join(words[at : at + 94]) for at in range(0, 200, 94)]
    found = await ask(made, " ".join(words), raw_scores=True)
    wanted = np.average(logits(tmp_path, parts), axis=0, weights=[94, 94, 12])
    assert np.allclose(list(found.data[0].all_scores.values()), wanted, atol=1e-3)
    assert (found.data[0].windows, found.usage.prompt_tokens) == (3, 206)


async def test_it_moderates(opener: Any, ask: Any, tmp_path: Path) -> None:
    made = opener(file(tmp_path, LABELS), {"moderation": {"garden": "violence"}}, engine="llama")
    plain = (await ask(made, TEXTS)).data
    results = (await made.answer(ModerationRequest(input=TEXTS))).results
    for item, verdict in zip(plain, results, strict=True):
        assert verdict.category_scores["violence"] == pytest.approx(item.all_scores["garden"], abs=1e-5)


@pytest.mark.parametrize("segments", [1, 2])
async def test_pairs_and_zero_shot_are_those_of_transformers(
    opener: Any, ask: Any, tmp_path: Path, segments: int
) -> None:
    """With the segments of BERT, and for models that know only one."""
    cross_encoder(tmp_path, labels=3)
    model = transformers.BertForSequenceClassification.from_pretrained(tmp_path).eval()
    table = model.bert.embeddings.token_type_embeddings
    model.config.type_vocab_size = table.num_embeddings = segments
    table.weight = torch.nn.Parameter(table.weight[:segments].detach().clone())
    model.save_pretrained(tmp_path)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))

    def raw(*pair: str, second: int = segments - 1) -> np.ndarray:
        ids = tokenizer(*pair, return_tensors="pt", return_token_type_ids=True)
        types = ids["token_type_ids"] * second
        with torch.no_grad():
            return model(input_ids=ids["input_ids"], token_type_ids=types).logits[0].numpy()

    made = opener(convert(tmp_path, tmp_path / "model.gguf", pooling="rank", labels=NLI), engine="llama")
    pairs = [("river stone", "light"), ("light", "river stone")]
    found = await ask(made, [list(pair) for pair in pairs], raw_scores=True)
    for item, pair in zip(found.data, pairs, strict=True):
        assert np.abs(np.array(list(item.all_scores.values())) - raw(*pair)).max() < 5e-3
        assert segments == 1 or np.abs(raw(*pair) - raw(*pair, second=0)).max() > 2e-2
    assert np.abs(raw(*pairs[0]) - raw(*pairs[1])).max() > 2e-2
    found = await ask(made, "river stone", labels=["bread", "light"], raw_scores=True)
    for label, score in found.data[0].all_scores.items():
        assert score == pytest.approx(raw("river stone", f"This example is {label}.")[2], abs=5e-3)


def test_a_file_whose_head_was_lost_is_refused(opener: Any, tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"it lacks cls\.weight\): llama\.cpp's converter drops the pooler"):
        opener(file(tmp_path, LABELS, pooler=False), engine="llama")


def test_a_file_without_labels_is_refused(opener: Any, tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="names no labels"):
        opener(file(tmp_path, []), engine="llama")


def test_labels_of_the_table_are_checked(opener: Any, tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="no label `sprot`; did you mean `sport`"):
        opener(file(tmp_path, LABELS), {"moderation": {"sprot": "hate"}}, engine="llama")


def test_a_file_without_a_head_is_refused_in_words_of_this_task(opener: Any, tmp_path: Path) -> None:
    cross_encoder(tmp_path)
    path = convert(tmp_path, tmp_path / "mean.gguf", pooling="mean")
    with pytest.raises(LoadFailed, match="this file has no head for classification: its pooling is mean"):
        opener(path, engine="llama")
