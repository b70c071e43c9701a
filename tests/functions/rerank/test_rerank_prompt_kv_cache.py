"""Prompt KV cache: planned for, cached within its limit, computed again where nothing is cached."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import loads
import pytest
import torch
from rerankers import Opener, ask, decoder

from functions.engines.transformers.classifier import TransformersClassifierModel
from functions.engines.transformers.prompt_kv_cache import CachedPrompt, PromptKVCache
from functions.rerank.transformers import TransformersRerank

pytestmark = pytest.mark.anyio

QUERIES = ["where is the river", "what falls in the morning on the stone", "light"]
DOCUMENTS = ["Paris", "light falls on the river in the morning", "stone", "  two spaces first: " + "winter music " * 9]


def state(ids: list[int]) -> Any:
    return [(torch.zeros(1, 2, len(ids), 8), torch.zeros(1, 2, len(ids), 8))]


def test_the_least_recently_used_prompt_is_evicted_first() -> None:
    cache = PromptKVCache(10)
    first, second, third = (CachedPrompt(range(4)) for _ in range(3))
    made: list[int] = []

    def compute(ids: list[int]) -> Any:
        made.append(len(ids))
        return state(ids)

    for start in (first, second, first, third):
        cache.state(start, compute)
    assert first.state is not None and second.state is None and third.state is not None
    assert cache.tokens == 8 and made == [4, 4, 4]
    cache.state(second, compute)
    assert first.state is None and len(made) == 4
    cache.drop(second)
    cache.drop(second)
    assert second.state is None and cache.tokens == 4


def test_a_prompt_dropped_while_it_is_computed_is_not_cached() -> None:
    """As when a request is cancelled: nobody would forget it again."""
    cache, start = PromptKVCache(10), CachedPrompt(range(4))

    def compute(ids: list[int]) -> Any:
        cache.drop(start)
        return state(ids)

    assert len(cache.state(start, compute)) == 1
    assert cache.tokens == 0 and start.state is None


def changed(opener: Opener, folder: Path, room: int, reach: int) -> Any:
    instance = opener(folder)
    model: Any = instance._scorer._model  # type: ignore[attr-defined]
    model._prompts.limit, model._reach = room, reach
    return instance, model


@pytest.mark.parametrize(
    ("room", "reach", "shared"),
    [(2048, 4096, True), (100, 4096, True), (2048, 1, True), (2048, 300, True), (5, 1, False)],
)
async def test_scores_do_not_depend_on_room(
    opener: Opener, tmp_path: Path, room: int, reach: int, shared: bool
) -> None:
    folder = decoder(tmp_path)
    plain = opener(folder)
    expected = [await ask(plain, query, DOCUMENTS, raw_scores=True) for query in QUERIES]
    instance, model = changed(opener, folder, room, reach)
    most = 0
    compute = model._last

    def last(rows: Any, before: Any, given: Any) -> Any:
        nonlocal most
        most = max(most, model._prompts.tokens)
        assert len(rows) == 1 or not before.shape[1] or len(rows) * (before.shape[1] + max(map(len, rows))) <= reach
        return compute(rows, before, given)

    model._last = last
    found = await asyncio.gather(*(ask(instance, query, DOCUMENTS, raw_scores=True) for query in QUERIES))
    for one, other in zip(found, expected, strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-4)
        assert (one.usage.cached_tokens > 0) is shared
    assert most <= room
    assert model._prompts.tokens == 0


async def test_what_is_planned_for_is_what_is_kept(opener: Opener, tmp_path: Path) -> None:
    folder = decoder(tmp_path)
    load = loads.given("rerank", folder, {})
    plan, bare = TransformersRerank.plan(load), TransformersClassifierModel.plan(load)
    tokens = plan.detail["start_tokens"]
    model: Any = opener(folder)._scorer._model  # type: ignore[attr-defined]
    kept = model._prefill(list(range(100)))
    size = sum(part.numel() * part.element_size() for pair in kept for part in pair)
    assert plan.bytes["ram"] - bare.bytes["ram"] == plan.detail["starts"] > size * tokens // 100
    assert plan.detail["starts"] < 4 * size * tokens // 100
    assert model._prompts.limit == tokens >= 1024


@pytest.mark.parametrize(("attempt", "share"), [(0, 1), (1, 2)])
def test_a_second_attempt_keeps_less(tmp_path: Path, attempt: int, share: int) -> None:
    folder = decoder(tmp_path)
    first = TransformersRerank.plan(loads.given("rerank", folder, {}))
    found = TransformersRerank.plan(loads.given("rerank", folder, {}, attempt=attempt))
    assert found.detail["starts"] * share == first.detail["starts"]


@pytest.mark.parametrize("kind", ["gemma2", "unknown"])
def test_nothing_is_planned_where_nothing_is_shared(tmp_path: Path, kind: str) -> None:
    folder = decoder(tmp_path, "qwen3" if kind == "unknown" else kind)
    if kind == "unknown":
        text = (folder / "config.json").read_text()
        (folder / "config.json").write_text(text.replace('"qwen3"', '"nobody-knows-it"'))
    plan = TransformersRerank.plan(loads.given("rerank", folder, {}))
    assert plan.detail["starts"] == plan.detail["start_tokens"] == 0
