"""Long texts: where windows lie, where seams lie, and that entities are those of the text read in one go."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
import walks
from hypothesis import given
from hypothesis import strategies as st

from functions.ner.api import NerRequest
from functions.ner.instance import NerInstance
from functions.ner.windows import merge_windows, windows

Opener = Callable[..., NerInstance]
OUTSIDE = np.array([True, False, False])


@st.composite
def cuts(draw: st.DrawFn) -> tuple[np.ndarray, int, int, int]:
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=40))
    room = draw(st.integers(1, 30))
    return np.cumsum([0, *sizes[:-1]]), sum(sizes), room, draw(st.integers(0, room - 1))


@pytest.mark.soak
@walks.examples(200, 3000)
@given(cuts())
def test_windows_cover_every_token(given: tuple[np.ndarray, int, int, int]) -> None:
    starts, count, room, overlap = given
    found = windows(starts, count, room, overlap)
    assert found[0][0] == 0
    assert found[-1][1] == count
    assert all(0 < last - first <= room for first, last in found)
    for (first, last), (other, behind) in itertools.pairwise(found):
        assert first < other <= last - overlap
        assert last < behind


@pytest.mark.soak
@walks.examples(100, 3000)
@given(cuts(), st.integers(0, 1000))
def test_every_token_has_one_row_of_a_window_it_is_in(given: tuple[np.ndarray, int, int, int], seed: int) -> None:
    starts, count, room, overlap = given
    cut = windows(starts, count, room, overlap)
    logits = np.random.default_rng(seed).standard_normal((count, 3)).astype(np.float32)
    found = merge_windows([logits[first:last] for first, last in cut], cut, starts, OUTSIDE)
    assert np.array_equal(found, logits)


def test_windows_begin_and_end_between_words() -> None:
    starts = np.cumsum([0, 3, 2, 4, 3, 1, 1, 3, 3, 2] * 4)
    found = windows(starts, 90, 20, 4)
    borders = {*starts.tolist(), 90}
    assert all(first in borders and last in borders for first, last in found)
    assert len(found) > 3


def test_a_word_longer_than_a_window_is_read_all_the_same() -> None:
    assert windows(np.array([0, 2]), 40, 10, 4)[0] == (0, 10)
    assert windows(np.array([0]), 25, 10, 0) == [(0, 10), (10, 20), (20, 25)]


def test_a_seam_lies_where_both_windows_see_most() -> None:
    cut = [(0, 10), (6, 16)]
    parts = [np.tile([np.float32(9), 0, 0], (10, 1)), np.tile([np.float32(8), 0, 0], (10, 1))]
    found = merge_windows(parts, cut, np.arange(16), OUTSIDE)
    assert found[:, 0].tolist() == [9] * 8 + [8] * 8


def test_a_seam_keeps_out_of_entities() -> None:
    cut = [(0, 10), (4, 14)]
    entity = np.array([0, 9, 0], np.float32)
    first, second = np.tile([np.float32(9), 0, 0], (10, 1)), np.tile([np.float32(8), 0, 0], (10, 1))
    first[6:9] = entity  # tokens 6, 7, 8
    second[2:5] = entity - np.array([0, 1, 0], np.float32)
    found = merge_windows([first, second], cut, np.arange(14), OUTSIDE)
    assert found[:6, 0].tolist() == [9] * 6
    assert found[9:, 0].tolist() == [8] * 5
    assert found[6:9, 1].tolist() == [8] * 3, "all of the entity is of one window"


@pytest.fixture(scope="module")
def contextless(tiny: Callable[..., Path]) -> Path:
    """A model in which each token's logits are its own: windows may change nothing."""
    path = tiny("bert", max_position_embeddings=512)
    model = transformers.AutoModelForTokenClassification.from_pretrained(path)
    with torch.no_grad():
        model.bert.embeddings.position_embeddings.weight.zero_()
        for layer in model.bert.encoder.layer:
            layer.attention.output.dense.weight.zero_()
            layer.attention.output.dense.bias.zero_()
        model.classifier.weight.mul_(8)
    model.save_pretrained(path)
    return path


@pytest.mark.anyio
@pytest.mark.parametrize("strategy", ["simple", "first", "average", "max"])
@pytest.mark.parametrize(("window", "stride"), [(8, 0), (8, 3), (13, None), (40, 7), (64, 31), (3, 0), (100, None)])
async def test_windows_change_nothing_but_context(
    contextless: Path, opener: Opener, strategy: str, window: int, stride: int | None
) -> None:
    text = "Clara Barton, (Berkeley) lives in Wolfgangberlinjohannesbrahms-California.\nWashington Spree, " * 6
    instance = opener(contextless)
    whole = await instance.answer(NerRequest(model="m", input=text, aggregation_strategy=strategy))
    parts = await instance.answer(
        NerRequest(model="m", input=text, aggregation_strategy=strategy, max_length=window, stride=stride)
    )
    places = [(entity.label, entity.start, entity.end) for entity in whole.data[0].entities]
    assert len(places) > 11
    assert [(entity.label, entity.start, entity.end) for entity in parts.data[0].entities] == places
    scores = [entity.score for entity in whole.data[0].entities]
    assert [entity.score for entity in parts.data[0].entities] == pytest.approx(scores, abs=1e-5)
    assert parts.usage.prompt_tokens > whole.usage.prompt_tokens


@pytest.mark.anyio
async def test_megabytes_hold_nobody_up(contextless: Path, opener: Opener) -> None:
    instance = opener(contextless)
    text = "Clara Barton lives in Berkeley California. " * 3000
    answer = await instance.answer(NerRequest(model="m", input=[text, "Clara"]))
    once = await instance.answer(NerRequest(model="m", input="Clara Barton lives in Berkeley California. "))
    assert len(answer.data[0].entities) >= 3000 * len(once.data[0].entities) - 3000
    assert answer.data[0].entities[-1].end > len(text) - 60
    assert [(entity.text, entity.start) for entity in answer.data[1].entities] == [("Clara", 0)]
