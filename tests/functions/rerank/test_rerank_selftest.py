"""The look at a loaded reranker: weights and scores that are right, wrong or say nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import loads
import pytest
import safetensors.torch
import torch
from ggufs.bert import convert
from ggufs.tiny import cross_encoder
from rerankers import Opener
from tinymodels import headed

from functions.engines.batching.item import Ids
from functions.rerank import selftest
from functions.rerank.options import RerankOptions
from functions.rerank.scorer import Mark, Reading
from functions.rerank.transformers import TransformersRerank
from host.errors import ColdframeError, LoadFailed


class Made:
    """A scorer whose marks a test makes up from the words that query and document share."""

    longest = 512

    def __init__(self, judge: Any) -> None:
        self._judge = judge

    async def read(self, query: str, documents: Sequence[str], instruction: str | None) -> Reading:
        return Reading(
            parts=[torch.arange(4).int().numpy() for _ in documents], frame=4, room=100, state=(query, documents)
        )

    async def marks(self, reading: Reading, parts: Sequence[Ids]) -> list[Mark]:
        query, documents = reading.state
        shared = [len(set(query.lower().strip("?").split()) & set(text.lower().split())) for text in documents]
        return [Mark(self._judge(count), self._judge(count)) for count in shared]


def refuse(_: int) -> float:
    raise ColdframeError("the model gave numbers that are not finite in fp32")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("judge", "words"),
    [
        (lambda shared: float(-shared), "answered better by what has nothing to do with them"),
        (lambda shared: 0.25, "the same score to everything"),
        (lambda shared: float("nan"), "not finite"),
        (refuse, "self-test of the reranker failed: the model gave numbers that are not finite"),
    ],
)
async def test_useless_scores_are_told_apart(judge: Any, words: str) -> None:
    with pytest.raises(LoadFailed, match=words) as caught:
        await selftest.look(Made(judge), RerankOptions())
    assert "options.self_test: false" in caught.value.message


@pytest.mark.anyio
async def test_scores_that_tell_are_taken() -> None:
    await selftest.look(Made(float), RerankOptions())


def test_one_question_confused_is_enough() -> None:
    assert len({query for query, _, _ in selftest.PAIRS}) == len(selftest.PAIRS) >= 5


def test_a_lost_head_is_refused_and_served_all_the_same(opener: Opener, tmp_path: Path) -> None:
    """A classifier of zeros is what is left where a conversion dropped the weights."""
    folder = headed(tmp_path, "bert", "sequence", ["x"])
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["classifier.weight"] = torch.zeros_like(weights["classifier.weight"])
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LoadFailed, match="the same score to everything"):
        opener(folder, {"self_test": True})
    assert opener(folder).facts().detail["self_test"] is False


def test_noise_is_refused(opener: Opener, tmp_path: Path) -> None:
    folder = headed(tmp_path, "bert", "sequence", ["x"])
    with pytest.raises(LoadFailed, match="self-test"):
        opener(folder, {"self_test": True})


def test_weights_that_are_not_finite(opener: Opener, tmp_path: Path) -> None:
    folder = headed(tmp_path, "bert", "sequence", ["x"])
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["classifier.bias"] = torch.full_like(weights["classifier.bias"], float("nan"))
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LoadFailed, match="not finite"):
        opener(folder, {"self_test": True})


def test_a_gguf_without_its_pooler(opener: Opener, tmp_path: Path) -> None:
    path = convert(cross_encoder(tmp_path / "model"), tmp_path / "headless.gguf", pooling="rank", pooler=False)
    with pytest.raises(LoadFailed, match="self-test"):
        opener(path, {"self_test": True}, engine="llama")


def test_real_vectors_pass(opener: Opener, minilm: Path) -> None:
    assert opener(minilm, {"method": "cosine", "self_test": True}).facts().detail["self_test"] is True


def test_an_instruction_without_a_place_is_told_at_once(opener: Opener, tmp_path: Path) -> None:
    folder = headed(tmp_path, "bert", "sequence", ["x"])
    with pytest.raises(LoadFailed, match="instruction"):
        opener(folder, {"self_test": True, "instruction": "find"})


def test_unknown_options_are_refused() -> None:
    with pytest.raises(Exception, match="methd"):
        loads.given("rerank", Path(), {"methd": "cosine"})


def test_the_plan_says_how_it_scores(tmp_path: Path) -> None:
    folder = headed(tmp_path, "bert", "sequence", ["x"])
    plan = TransformersRerank.plan(loads.given("rerank", folder, {}))
    assert plan.notes[-1] == "method: cross_encoder (config.json: BertForSequenceClassification)"
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]
