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
from functions.rerank import self_test
from functions.rerank.options import RerankOptions
from functions.rerank.scorer import RelevanceScore, TokenizedRequest
from functions.rerank.transformers import TransformersRerank
from host.errors import ColdframeError, LoadFailed


class Made:
    """A scorer whose scores a test computes from the words that query and document share."""

    longest = 512

    def __init__(self, score_of: Any, but: dict[tuple[str, str], float] | None = None) -> None:
        self._score_of = score_of
        self._but = but or {}

    async def tokenize(self, query: str, documents: Sequence[str], instruction: str | None) -> TokenizedRequest:
        return TokenizedRequest(
            documents=[torch.arange(4).int().numpy() for _ in documents],
            overhead=4,
            document_tokens=100,
            state=(query, documents),
        )

    async def score(self, request: TokenizedRequest, chunks: Sequence[Ids]) -> list[RelevanceScore]:
        query, documents = request.state
        shared = [len(set(query.lower().strip("?").split()) & set(text.lower().split())) for text in documents]
        scores = [self._score_of(count) for count in shared]
        scores = [self._but.get((query, text), score) for text, score in zip(documents, scores, strict=True)]
        return [RelevanceScore(score, score) for score in scores]


def refuse(_: int) -> float:
    raise ColdframeError("the model gave numbers that are not finite in fp32")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("score_of", "words"),
    [
        (lambda shared: float(-shared), "answered better by what has nothing to do with them"),
        (lambda shared: 0.25, "the same score to everything"),
        (lambda shared: float("nan"), "not finite"),
        (refuse, "self-test of the reranker failed: the model gave numbers that are not finite"),
    ],
)
async def test_useless_scores_fail_the_self_test(score_of: Any, words: str) -> None:
    with pytest.raises(LoadFailed, match=words) as caught:
        await self_test.run(Made(score_of), RerankOptions())
    assert "options.self_test: false" in caught.value.message


@pytest.mark.anyio
async def test_scores_that_differ_pass_the_self_test() -> None:
    await self_test.run(Made(float), RerankOptions())


@pytest.mark.anyio
@pytest.mark.parametrize("confused", range(len(self_test.PAIRS)))
async def test_one_question_confused_is_enough(confused: int) -> None:
    query, right, wrong = self_test.PAIRS[confused]
    scorer = Made(float, {(query, right): 0.0, (query, wrong): 1.0})
    with pytest.raises(LoadFailed, match=r"1 of 5 questions answered better") as caught:
        await self_test.run(scorer, RerankOptions())
    assert query in caught.value.message


@pytest.mark.anyio
async def test_a_model_that_does_not_read_the_query_is_refused() -> None:
    """Such as one that tells good texts from bad: all that answers anything is better than all that does not."""
    right = {text for _, text, _ in self_test.PAIRS}
    grades = {(query, text): 5.0 + at for query, _, _ in self_test.PAIRS for at, text in enumerate(sorted(right))}
    with pytest.raises(LoadFailed, match="answered better"):
        await self_test.run(Made(float, grades), RerankOptions())


def test_a_lost_head_is_refused_and_served_all_the_same(opener: Opener, tmp_path: Path) -> None:
    """A classifier of zeros is what is left where a conversion dropped the weights."""
    folder = headed(tmp_path, "bert", "sequence", ["x"])
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["classifier.weight"] = torch.zeros_like(weights["classifier.weight"])
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LoadFailed, match="the same score to everything"):
        opener(folder, {"self_test": True})
    assert opener(folder).info().detail["self_test"] is False


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


@pytest.mark.parametrize("self_test", [True, False])
def test_a_gguf_without_its_pooler(opener: Opener, tmp_path: Path, self_test: bool) -> None:
    """Its scores mean nothing in any language, so that there is no switch for it."""
    path = convert(cross_encoder(tmp_path / "model"), tmp_path / "headless.gguf", pooling="rank", pooler=False)
    with pytest.raises(LoadFailed, match=r"it lacks cls\.weight.*drops the pooler.*pooler\.dense as cls") as caught:
        opener(path, {"self_test": self_test}, engine="llama")
    assert "self_test" not in caught.value.message


@pytest.mark.parametrize("self_test", [True, False])
def test_a_gguf_without_any_head(opener: Opener, tmp_path: Path, self_test: bool) -> None:
    path = convert(cross_encoder(tmp_path / "model"), tmp_path / "mean.gguf", pooling="mean", head=False)
    with pytest.raises(LoadFailed, match=r"no head that scores pairs.*options\.method: cosine"):
        opener(path, {"self_test": self_test, "pooling": "rank"}, engine="llama")


def test_a_whole_gguf_of_noise(opener: Opener, tmp_path: Path) -> None:
    path = convert(cross_encoder(tmp_path / "model"), tmp_path / "noise.gguf", pooling="rank")
    with pytest.raises(LoadFailed, match="self-test"):
        opener(path, {"self_test": True}, engine="llama")


def test_real_vectors_pass(opener: Opener, minilm: Path) -> None:
    assert opener(minilm, {"method": "cosine", "self_test": True}).info().detail["self_test"] is True


def test_an_instruction_without_a_place_is_refused_at_load(opener: Opener, tmp_path: Path) -> None:
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
