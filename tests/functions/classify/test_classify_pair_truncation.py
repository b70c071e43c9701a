"""Pairs of texts as one input, against Transformers' text-classification pipeline: tokens, segments, cuts, windows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from test_classify_zeroshot import NLI, bart, doubled
from tinymodels import headed

from functions.classify.inputs import Pair
from functions.classify.pair_truncation import longest_first, max_shorter, pair_windows
from host.errors import InputTooLong, InvalidRequest

pytestmark = pytest.mark.anyio

LABELS = ["same", "other", "neither"]
PAIRS = [
    {"text": "river stone", "text_pair": "light"},
    {"text": "light", "text_pair": "number window garden paper winter"},
    {"text": "music train bread letter", "text_pair": "music train bread letter"},
    {"text": "light", "text_pair": "river stone"},
]
LONG = ("river stone light number window garden paper " * 14).strip()
KINDS = ["bert", "roberta", "deberta-v2", "distilbert", "modernbert"]


def model(folder: Path, kind: str, labels: list[str] = LABELS, **config: Any) -> Path:
    headed(folder, kind, "sequence", labels, **config)
    if kind == "roberta":
        doubled(folder)
    return folder


def expected(pipe: Any, given: list[Any], labels: list[str] = LABELS, **more: Any) -> np.ndarray:
    rows = [{entry["label"]: entry["score"] for entry in pipe(one, top_k=None, **more)} for one in given]
    return np.array([[row[label] for label in labels] for row in rows])


def table(found: Any) -> np.ndarray:
    return np.array([list(item.all_scores.values()) for item in found.data])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification"])
async def test_scores_are_those_of_the_pipeline(
    opener: Any, ask: Any, pipeline: Any, tmp_path: Path, kind: str, problem: str
) -> None:
    model(tmp_path, kind, problem_type=problem)
    made = opener(tmp_path)
    found = await ask(made, PAIRS)
    wanted = expected(pipeline("text-classification", tmp_path), PAIRS)
    assert np.abs(table(found) - wanted).max() < 1e-5
    assert np.abs(wanted[0] - wanted[3]).max() > 1e-4, "the order of the texts matters"
    frame = 4 if kind == "roberta" else 3
    assert found.usage.prompt_tokens == sum(len(f"{one['text']} {one['text_pair']}".split()) + frame for one in PAIRS)
    lists = await ask(made, [[one["text"], one["text_pair"]] for one in PAIRS])
    assert lists == found


@pytest.mark.parametrize("kind", ["bert", "roberta", "deberta-v2"])
async def test_onnx_says_the_same(opener: Any, ask: Any, pipeline: Any, tmp_path: Path, kind: str) -> None:
    onnxmodels = pytest.importorskip("onnxmodels")
    onnxmodels.export(model(tmp_path, kind), "sequence", typed=kind == "bert", keep=True)
    found = await ask(opener(tmp_path, engine="onnx"), PAIRS)
    assert np.abs(table(found) - expected(pipeline("text-classification", tmp_path), PAIRS)).max() < 1e-4


async def test_segments_matter(opener: Any, ask: Any, tmp_path: Path) -> None:
    """The test of parity would not see a lost segment if the model did not."""
    model(tmp_path, "bert")
    made = opener(tmp_path)
    found = table(await ask(made, PAIRS))
    made._predictor._tokenizer._pair._types = None
    assert np.abs(table(await ask(made, PAIRS)) - found).max() > 1e-3


async def test_segments_are_left_out_where_the_model_knows_one(
    opener: Any, ask: Any, pipeline: Any, tmp_path: Path
) -> None:
    """The tokenizer says 1 for the second text, which would be past the end of RoBERTa's table."""
    headed(tmp_path, "roberta", "sequence", NLI)
    pipe, made = pipeline("text-classification", tmp_path), opener(tmp_path)
    assert np.abs(table(await ask(made, PAIRS)) - expected(pipe, PAIRS, NLI)).max() < 1e-5
    assert (await ask(made, "river", labels=["stone", "bread"])).data


async def test_texts_and_pairs_of_one_request(opener: Any, ask: Any, pipeline: Any, tmp_path: Path) -> None:
    model(tmp_path, "bert")
    made = opener(tmp_path)
    mixed = ["river", PAIRS[0], {"text": "bread"}, ["light", "stone"]]
    found = await ask(made, mixed)
    same = ["river", PAIRS[0], "bread", {"text": "light", "text_pair": "stone"}]
    assert np.abs(table(found) - expected(pipeline("text-classification", tmp_path), same)).max() < 1e-5
    assert [item.index for item in found.data] == [0, 1, 2, 3]
    alone = await ask(made, PAIRS[0])
    assert alone.data[0].all_scores == pytest.approx(found.data[1].all_scores, abs=1e-6)


async def test_bart_takes_texts_pairs_and_spelled_ends_in_one_request(
    opener: Any, ask: Any, pipeline: Any, tmp_path: Path
) -> None:
    """It reads the last closing token and refuses a batch of inputs that have different numbers of them."""
    bart(tmp_path)
    doubled(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["id2label"] = dict(enumerate(LABELS))
    (tmp_path / "config.json").write_text(json.dumps(config))
    mixed = ["river", PAIRS[0], "bread stone", PAIRS[1]]
    made = opener(tmp_path)
    found = await ask(made, mixed)
    assert np.abs(table(found) - expected(pipeline("text-classification", tmp_path), mixed)).max() < 1e-5
    assert len((await ask(made, ["river </s> stone", "bread"])).data) == 2


async def test_a_long_pair_is_cut_as_the_pipeline_cuts_it(opener: Any, ask: Any, pipeline: Any, tmp_path: Path) -> None:
    model(tmp_path, "bert")
    pipe, made = pipeline("text-classification", tmp_path, limit=64), opener(tmp_path)
    other = " ".join(reversed(LONG.split()))
    pairs = [{"text": LONG, "text_pair": "bread"}, {"text": "bread", "text_pair": LONG}]
    pairs += [{"text": LONG, "text_pair": other}, {"text": LONG, "text_pair": other[:-11]}]
    pairs += [{"text": other[:-11], "text_pair": LONG}, {"text": " ".join(LONG.split()[:31]), "text_pair": other}]
    wanted = expected(pipe, pairs, truncation=True)
    for fields in ({"truncate": True}, {"windows": "first"}):
        found = await ask(made, pairs, **fields)
        assert np.abs(table(found) - wanted).max() < 1e-5
        assert all((item.windows, item.truncated) == (1, True) for item in found.data)
        assert found.usage.prompt_tokens == len(pairs) * 64
    assert np.ptp(wanted, axis=0).min() > 1e-4


@pytest.mark.parametrize("swapped", [False, True])
async def test_the_longer_text_is_read_in_windows_beside_the_other(
    opener: Any, ask: Any, tmp_path: Path, swapped: bool
) -> None:
    model(tmp_path, "bert")
    made = opener(tmp_path, {"overlap": 0})
    words, short = LONG.split(), "bread music"
    room = 64 - 3 - 2
    parts = [" ".join(words[at : at + room]) for at in range(0, len(words), room)]

    def pair(text: str) -> dict[str, str]:
        return {"text": short, "text_pair": text} if swapped else {"text": text, "text_pair": short}

    raw = table(await ask(made, [pair(part) for part in parts], raw_scores=True))
    found = await ask(made, pair(LONG), raw_scores=True)
    mean = np.average(raw, axis=0, weights=[len(part.split()) for part in parts])
    assert np.allclose(table(found)[0], mean, atol=1e-5)
    assert (found.data[0].windows, found.data[0].truncated, len(parts)) == (2, False, 2)
    most = await ask(made, pair(LONG), raw_scores=True, windows="max")
    assert np.abs(table(most)[0] - mean).max() > 1e-4


async def test_a_pair_that_is_too_long_is_refused_with_its_numbers(opener: Any, ask: Any, tmp_path: Path) -> None:
    model(tmp_path, "bert")
    made = opener(tmp_path)
    with pytest.raises(InputTooLong, match=r"input\[1\] is too large: it has 98 and 1 tokens, 61 are read") as e:
        await ask(made, ["river", [LONG, "bread"]], windows="off")
    assert e.value.param == "input[1]"
    with pytest.raises(InputTooLong, match=r"98 and 98 tokens, 61 are read at once, and the shorter .* have 46"):
        await ask(made, ["river", [LONG, LONG]])
    fits = " ".join(LONG.split()[:46])
    assert (await ask(made, [[LONG, fits]])).data[0].windows > 1
    with pytest.raises(InputTooLong, match="may have 46"):
        await ask(made, [[LONG, f"{fits} river"]])
    for place, given in (("text", ["a" * 5000, "river"]), ("text_pair", ["river", "a" * 5000])):
        with pytest.raises(InputTooLong, match="more than 4096 characters") as e:
            await ask(made, [given], windows="off")
        assert e.value.param == f"input[0].{place}"


@pytest.mark.parametrize(
    ("given", "param"), [(["river", " \n"], "input[0].text_pair"), ([" ", "river"], "input[0].text")]
)
async def test_white_space_is_no_text(opener: Any, ask: Any, tmp_path: Path, given: list[str], param: str) -> None:
    model(tmp_path, "bert")
    with pytest.raises(InvalidRequest, match="has no tokens for this model") as caught:
        await ask(opener(tmp_path), [given])
    assert caught.value.param == param


async def test_a_limit_without_room_for_two_texts_is_told(opener: Any, ask: Any, tmp_path: Path) -> None:
    model(tmp_path, "bert")
    made = opener(tmp_path)
    with pytest.raises(InvalidRequest, match="max_length leaves no room") as caught:
        await ask(made, [["river", "stone"]], max_length=4)
    assert caught.value.param == "max_length"
    assert (await ask(made, [["river", "stone"]], max_length=5)).data[0].windows == 1


async def test_an_nli_model_scores_pairs_by_its_own_labels(
    opener: Any, ask: Any, pipeline: Any, tmp_path: Path
) -> None:
    model(tmp_path, "bert", NLI)
    wanted = expected(pipeline("text-classification", tmp_path), PAIRS, NLI)
    for options in ({}, {"labels": ["garden", "winter"], "multi_label": True}):
        found = await ask(opener(tmp_path, options), PAIRS)
        assert np.abs(table(found) - wanted).max() < 1e-5
        assert [list(item.all_scores) for item in found.data] == [NLI] * 4
        assert [len(item.labels) for item in found.data] == [3] * 4


@pytest.mark.parametrize(
    ("given", "fields", "param", "said"),
    [
        (PAIRS, {"labels": ["a"]}, "labels", "labels is for texts, and these are pairs"),
        (PAIRS, {"multi_label": True}, "multi_label", "is for texts, and these are pairs"),
        (["river", ["a", "b"]], {"labels": ["a"]}, "input[1]", "is a pair and others are texts"),
        (["river"], {}, "labels", "labels is missing"),
        (["river"], {"labels": ["a"], "function_to_apply": "softmax"}, "function_to_apply", "leave function_to"),
    ],
)
async def test_what_does_not_go_together_on_an_nli_model(
    opener: Any, ask: Any, tmp_path: Path, given: list[Any], fields: dict[str, Any], param: str, said: str
) -> None:
    model(tmp_path, "bert", NLI)
    with pytest.raises(InvalidRequest, match=said) as caught:
        await ask(opener(tmp_path), given, **fields)
    assert caught.value.param == param


@pytest.mark.parametrize("room", [1, 2, 3, 8, 9, 61])
def test_beginnings_are_those_of_the_tokenizers(room: int) -> None:
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=_letters())
    for first in range(1, 14):
        for second in range(1, 14):
            cut = made("a" * first, "b" * second, truncation=True, max_length=room)["input_ids"]
            assert longest_first(first, second, room) == (cut.count(0), cut.count(1))


def _letters() -> Any:
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    return made


@pytest.mark.parametrize(
    ("first", "second", "spans"),
    [
        (4, 6, [((0, 4), (0, 6))]),
        (10, 4, [((0, 6), (0, 4)), ((3, 9), (0, 4)), ((6, 10), (0, 4))]),
        (4, 10, [((0, 4), (0, 6)), ((0, 4), (3, 9)), ((0, 4), (6, 10))]),
        (8, 8, [((0, 2), (0, 8)), ((1, 3), (0, 8)), ((2, 4), (0, 8)), ((3, 5), (0, 8)), ((4, 6), (0, 8)),
                ((5, 7), (0, 8)), ((6, 8), (0, 8))]),
    ],
)  # fmt: skip
def test_windows_beside_the_shorter_text(first: int, second: int, spans: list[Any]) -> None:
    assert pair_windows(first, second, 10, 0.5) == spans


@pytest.mark.parametrize(("room", "most"), [(2, 1), (3, 2), (10, 8), (61, 46), (509, 382)])
def test_a_window_has_a_quarter_of_the_room(room: int, most: int) -> None:
    assert max_shorter(room) == most


def test_a_pair_is_two_texts() -> None:
    assert Pair(text="a", text_pair="b") == ("a", "b")
