"""Texts that are longer than the model takes: read in windows, at their beginning, or refused; never cut in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tinymodels import headed

from functions.classify import read_options, tokenize
from functions.engines.batching import text_split_points
from functions.engines.batching.item import PairFrame
from functions.engines.batching.token_windows import windows
from host.errors import InputTooLong, InvalidRequest, LoadFailed

pytestmark = pytest.mark.anyio

LABELS = ["sport", "science", "garden"]
WORDS = "river stone light number window garden paper winter music train bread letter".split()  # noqa: SIM905
LONG = [WORDS[at * at % 12] for at in range(150)]
ROOM = 62


async def apart(ask: Any, made: Any, spans: list[tuple[int, int]]) -> np.ndarray:
    """Return the logits of parts of the long text, each asked as a text of its own."""
    found = await ask(made, [" ".join(LONG[a:b]) for a, b in spans], raw_scores=True)
    return np.array([list(item.all_scores.values()) for item in found.data])


def softmax(row: np.ndarray) -> np.ndarray:
    return np.exp(row) / np.exp(row).sum(-1, keepdims=True)


@pytest.mark.parametrize("overlap", [0, 0.125, 0.5])
async def test_mean_weighs_windows_by_their_tokens(opener: Any, ask: Any, tmp_path: Path, overlap: float) -> None:
    headed(tmp_path, "bert", "sequence", LABELS)
    made = opener(tmp_path, {"overlap": overlap})
    spans = windows(150, ROOM, int(ROOM * overlap))
    raw = await apart(ask, made, spans)
    wanted = softmax(np.average(raw, axis=0, weights=[b - a for a, b in spans]))
    found = await ask(made, ["river", " ".join(LONG), "stone"])
    assert np.allclose(list(found.data[1].all_scores.values()), wanted, atol=1e-6)
    assert [(item.windows, item.truncated) for item in found.data] == [(1, False), (len(spans), False), (1, False)]
    assert found.usage.prompt_tokens == 3 + 3 + sum(b - a + 2 for a, b in spans)


async def test_max_takes_each_label_where_it_is_surest(opener: Any, ask: Any, tmp_path: Path) -> None:
    spans = windows(150, ROOM, int(ROOM * 0.125))
    headed(tmp_path / "single", "bert", "sequence", LABELS)
    made = opener(tmp_path / "single")
    surest = softmax(await apart(ask, made, spans)).max(0)
    found = (await ask(made, " ".join(LONG), windows="max")).data[0]
    assert np.allclose(list(found.all_scores.values()), surest / surest.sum(), atol=1e-6)
    headed(tmp_path / "multi", "bert", "sequence", LABELS, problem_type="multi_label_classification")
    made = opener(tmp_path / "multi", {"windows": "max"})
    surest = 1 / (1 + np.exp(-(await apart(ask, made, spans)).max(0)))
    found = (await ask(made, " ".join(LONG))).data[0]
    assert np.allclose(list(found.all_scores.values()), surest, atol=1e-6)


async def test_the_beginning_alone_is_reported(opener: Any, ask: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", LABELS)
    made = opener(tmp_path)
    wanted = (await ask(made, " ".join(LONG[:ROOM]))).data[0]
    for options, fields in (({}, {"truncate": True}), ({}, {"windows": "first"}), ({"windows": "first"}, {})):
        found = await ask(opener(tmp_path, options), " ".join(LONG), **fields)
        assert np.allclose(list(found.data[0].all_scores.values()), list(wanted.all_scores.values()), atol=1e-6)
        assert (found.data[0].windows, found.data[0].truncated) == (1, True)
        assert found.usage.prompt_tokens == 64


@pytest.mark.parametrize(
    ("options", "fields"),
    [({"windows": "off"}, {}), ({}, {"windows": "off"}), ({"windows": "first"}, {"truncate": False})],
)
async def test_a_long_text_may_be_refused(
    opener: Any, ask: Any, tmp_path: Path, options: dict[str, Any], fields: dict[str, Any]
) -> None:
    headed(tmp_path, "bert", "sequence", LABELS)
    made = opener(tmp_path, options)
    with pytest.raises(
        InputTooLong, match=r"input\[1\] is too large: it has 150 tokens, 62 are read at once"
    ) as caught:
        await ask(made, ["river", " ".join(LONG)], **fields)
    assert caught.value.param == "input[1]"
    assert (await ask(made, " ".join(LONG[:ROOM]), **fields)).data[0].windows == 1


async def test_truncate_false_leaves_windows_as_they_are(opener: Any, ask: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", LABELS)
    assert (await ask(opener(tmp_path), " ".join(LONG), truncate=False)).data[0].windows == 3


async def test_max_length_makes_smaller_windows(opener: Any, ask: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", LABELS)
    made = opener(tmp_path, {"overlap": 0})
    spans = windows(150, 8, 0)
    raw = await apart(ask, made, spans)
    found = (await ask(made, " ".join(LONG), max_length=10)).data[0]
    assert found.windows == len(spans) == 19
    wanted = softmax(np.average(raw, axis=0, weights=[b - a for a, b in spans]))
    assert np.allclose(list(found.all_scores.values()), wanted, atol=1e-6)
    cut = await ask(made, " ".join(LONG), max_length=10, truncate=True)
    assert cut.usage.prompt_tokens == 10
    for wrong, said in ((65, "max_length is 65, the model takes 64"), (2, "leaves no room")):
        with pytest.raises(InvalidRequest, match=said) as caught:
            await ask(made, "river", max_length=wrong)
        assert caught.value.param == "max_length"


async def test_white_space_is_no_text(opener: Any, ask: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", LABELS)
    with pytest.raises(InvalidRequest, match=r"input\[1\] has no tokens for this model$") as caught:
        await ask(opener(tmp_path), ["river", " \n"])
    assert caught.value.param == "input[1]"


async def test_megabytes_are_cut_or_refused_before_they_are_tokenised(
    opener: Any, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headed(tmp_path, "bert", "sequence", LABELS)
    made = opener(tmp_path)
    lengths: list[int] = []
    encode = made.model.tokenizer.encode

    async def listen(texts: list[str]) -> Any:
        lengths.extend(map(len, texts))
        return await encode(texts)

    monkeypatch.setattr(made.model.tokenizer, "encode", listen)
    huge = "river " * 500_000
    found = await ask(made, huge, truncate=True)
    assert found.data[0].truncated
    with pytest.raises(InputTooLong, match="more than 4096 characters, the model takes 64 tokens"):
        await ask(made, huge, windows="off")
    with pytest.raises(InputTooLong, match="more than 57351 tokens, and 56327 are read in windows at most"):
        await ask(made, huge)
    unbroken = "a" * 5_000_000
    assert (await ask(made, unbroken, truncate=True)).data[0].truncated
    with pytest.raises(InputTooLong, match=r"more than 3670528 characters.*send it in parts") as caught:
        await ask(made, ["a", unbroken])
    assert caught.value.param == "input[1]"
    # The first 64 * 64 characters that are no white space: 819 words and one letter. Windows are read part by part
    # until it is too much, which is so after a ninth of the text. What is shorter are samples.
    read = [length for length in lengths if length > 1000]
    assert (read[0], read[-1]) == (819 * 6 + 1, 64 * 64)
    assert all(text_split_points.PART <= length < text_split_points.PART + 6 for length in read[1:-1])
    assert len(read[1:-1]) == 21


async def test_a_text_of_many_parts_is_read_as_a_whole(
    opener: Any, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts that it is tokenised in leave no trace."""
    headed(tmp_path, "bert", "sequence", LABELS)
    long = " ".join(LONG * 4)
    whole = await ask(opener(tmp_path), long)
    monkeypatch.setattr(text_split_points, "PART", 60)
    monkeypatch.setattr(text_split_points, "UNBROKEN", 100)
    made = opener(tmp_path)
    calls: list[int] = []
    encode = made.model.tokenizer.encode

    async def listen(texts: list[str]) -> Any:
        calls.extend(map(len, texts))
        return await encode(texts)

    monkeypatch.setattr(made.model.tokenizer, "encode", listen)
    assert await ask(made, long) == whole
    assert max(calls) <= 100
    assert len(calls) > len(long) / 100


async def test_megabytes_of_a_label_are_refused(opener: Any, ask: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", ["contradiction", "neutral", "entailment"])
    made = opener(tmp_path)
    with pytest.raises(InputTooLong, match="more than 4096 characters") as caught:
        await ask(made, "river", labels=["stone", "a" * 5000])
    assert caught.value.param == "labels[1]"
    with pytest.raises(InputTooLong) as caught:
        await ask(made, "river", labels=["stone"], hypothesis_template="{}" + "a" * 5000)
    assert caught.value.param == "hypothesis_template"
    found = await ask(made, "a" * 5_000_000, labels=["stone"], truncate=True)
    assert found.data[0].truncated


@pytest.mark.parametrize("labels", [LABELS, ["contradiction", "neutral", "entailment"]])
def test_a_context_without_room_is_refused(opener: Any, tmp_path: Path, labels: list[str]) -> None:
    headed(tmp_path, "bert", "sequence", labels)
    with pytest.raises(LoadFailed, match=r"context is 2: it must be more than the [23] special tokens"):
        opener(tmp_path, context=2)


async def test_one_request_has_a_bound(opener: Any, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_options, "ITEMS_MAX", 5)
    headed(tmp_path / "plain", "bert", "sequence", LABELS)
    with pytest.raises(InvalidRequest, match="at least 6 windows, and 5 inputs are computed at most"):
        await ask(opener(tmp_path / "plain"), [" ".join(LONG)] * 2)
    headed(tmp_path / "nli", "bert", "sequence", ["contradiction", "neutral", "entailment"])
    with pytest.raises(InvalidRequest, match="3 texts with 2 labels, and 5 inputs") as caught:
        await ask(opener(tmp_path / "nli"), ["river"] * 3, labels="stone, bread")
    assert caught.value.param == "input"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets a number for each pair made, of how often other work had its turn before it."""
    found: list[int] = []
    turns = 0
    item, sleep = PairFrame.item, tokenize.asyncio.sleep

    def count(*given: Any) -> Any:
        found.append(turns)
        return item(*given)

    async def turn(seconds: float) -> None:
        nonlocal turns
        turns += 1
        await sleep(seconds)

    monkeypatch.setattr(PairFrame, "item", count)
    monkeypatch.setattr(tokenize.asyncio, "sleep", turn)
    return found


@pytest.mark.parametrize(("given", "fields"), [([" ".join(LONG)] * 9, {"labels": "stone, bread"}), (None, {})])
async def test_nothing_is_made_for_a_request_over_the_bound(
    opener: Any, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: list[int], given: Any, fields: Any
) -> None:
    headed(tmp_path, "bert", "sequence", ["contradiction", "neutral", "entailment"])
    made = opener(tmp_path)
    monkeypatch.setattr(read_options, "ITEMS_MAX", 20)
    with pytest.raises(InvalidRequest, match=r"at least 2\d windows, and 20 inputs are computed at most") as caught:
        await ask(made, given or [[" ".join(LONG), "bread"]] * 9, **fields)
    assert caught.value.param == "input"
    assert built == []


async def test_others_have_their_turn_by_items(
    opener: Any, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: list[int]
) -> None:
    """However few texts they are of."""
    monkeypatch.setattr(tokenize, "_YIELD_EVERY", 4)
    headed(tmp_path, "bert", "sequence", ["contradiction", "neutral", "entailment"])
    await ask(opener(tmp_path), [[" ".join(LONG), "bread"]] * 6)
    assert len(built) == 18
    assert all(built[at + 6] > built[at] for at in range(12))


@pytest.mark.parametrize("overlap", [0, 0.125, 0.5])
@pytest.mark.parametrize("pair", [False, True])
async def test_the_longest_text_is_as_long_as_the_message_says(
    opener: Any, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlap: float, pair: bool
) -> None:
    """Windows overlap, so that so many of them hold fewer tokens than they have in sum."""
    monkeypatch.setattr(read_options, "WINDOWS_MAX", 3)
    headed(tmp_path, "bert", "sequence", LABELS)
    made = opener(tmp_path, {"overlap": overlap})
    room = 64 - 3 - 1 if pair else ROOM
    most = room + 2 * (room - int(room * overlap))

    def given(count: int) -> Any:
        text = " ".join(["river"] * count)
        return [[text, "bread"]] if pair else [text]

    assert (await ask(made, given(most))).data[0].windows == 3
    with pytest.raises(InputTooLong, match=rf"and {most} are read in windows at most") as caught:
        await ask(made, given(most + 1))
    assert caught.value.param == "input[0]"
