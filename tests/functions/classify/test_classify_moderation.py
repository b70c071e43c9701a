"""Moderation by the manifest's table: each category's score is its surest label's, and flags from its threshold on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tinymodels import headed

from functions.classify.api import ModerationAnswer, ModerationRequest
from functions.classify.moderation import ModerationMapper
from functions.classify.openai_categories import CATEGORIES
from functions.classify.options import Rule
from functions.classify.top_labels import Predictions
from host.errors import InputTooLong, InvalidRequest

LABELS = ("toxic", "threat", "gore")


def read(*scores: list[float]) -> Predictions:
    rows, count = np.array(scores), len(scores)
    return Predictions(
        labels=LABELS, scores=rows, raw=rows, multi_label=True, windows=[1] * count, truncated=[False] * count, tokens=1
    )


def judged(table: dict[str, Any], scores: list[float], said: Any = None) -> Any:
    return ModerationMapper(table, said).moderate(read(scores))[0]


@pytest.mark.parametrize("scores", [[0.6, 0.4, 0.0], [0.4, 0.6, 0.0]])
def test_the_surest_label_of_a_category_decides(scores: list[float]) -> None:
    assert judged({"toxic": "hate", "threat": "hate"}, scores).category_scores["hate"] == pytest.approx(0.6)


def test_the_worst_of_the_parts_of_one_input_decides() -> None:
    verdicts = ModerationMapper({"toxic": "hate", "threat": "violence"}, None)
    parts = read([0.1, 0.7, 0.0], [0.6, 0.2, 0.0])
    assert [verdict.category_scores["hate"] for verdict in verdicts.moderate(parts)] == [0.1, 0.6]
    (found,) = verdicts.moderate(parts, single_input=True)
    assert (found.category_scores["hate"], found.category_scores["violence"]) == (0.6, 0.7)
    assert (found.categories["hate"], found.categories["violence"]) == (True, True)


@pytest.mark.parametrize(
    ("table", "said", "flags"),
    [
        ({"toxic": "harassment"}, None, {"harassment"}),
        ({"toxic": ["harassment", "hate"]}, None, {"harassment", "hate"}),
        ({"threat": "violence"}, None, set()),
        ({"threat": Rule(category="violence", threshold=0.3)}, None, {"violence"}),
        ({"toxic": Rule(category=["hate", "illicit"], threshold=0.61)}, None, set()),
        ({"toxic": "hate"}, 0.7, set()),
        ({"toxic": "hate", "threat": "violence"}, {"toxic": 0.7, "threat": 0.4}, {"violence"}),
        ({"toxic": Rule(category="hate", threshold=0.1)}, 0.7, {"hate"}),
        ({"gore": "violence", "threat": Rule(category="violence", threshold=0.2)}, None, {"violence"}),
    ],
)
def test_what_flags(table: dict[str, Any], said: Any, flags: set[str]) -> None:
    found = judged(table, [0.6, 0.4, 0.1], said)
    assert {category for category, flag in found.categories.items() if flag} == flags
    assert found.flagged is bool(flags)


def test_all_categories_are_there_with_their_input_types() -> None:
    found = judged({"toxic": "hate", "threat": ["hate", "violence"]}, [0.3, 0.8, 0.9])
    for mapping in (found.categories, found.category_scores, found.category_applied_input_types):
        assert list(mapping) == list(CATEGORIES)
    assert found.category_scores["hate"] == found.category_scores["violence"] == 0.8
    assert sum(found.category_scores.values()) == pytest.approx(1.6)
    types_by_category = found.category_applied_input_types
    assert {category for category, types in types_by_category.items() if types == ["text"]} == {"hate", "violence"}
    assert all(types in ([], ["text"]) for types in types_by_category.values())


@pytest.mark.anyio
async def test_a_model_without_a_table_says_what_to_add(opener: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", LABELS)
    with pytest.raises(InvalidRequest, match=r"`m` does not moderate: its manifest has no options\.moderation") as told:
        await opener(tmp_path).answer(ModerationRequest(input="river"))
    assert told.value.param == "model"


@pytest.mark.anyio
async def test_scores_are_those_of_the_classifier(opener: Any, ask: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", LABELS, problem_type="multi_label_classification")
    made = opener(tmp_path, {"moderation": {"toxic": "hate", "gore": "violence/graphic"}})
    texts = ["river stone", "light"]
    plain, found = await ask(made, texts), await made.answer(ModerationRequest(input=texts))
    assert isinstance(found, ModerationAnswer)
    for single_input, verdict in zip(plain.data, found.results, strict=True):
        assert verdict.category_scores["hate"] == pytest.approx(single_input.all_scores["toxic"])
        assert verdict.category_scores["violence/graphic"] == pytest.approx(single_input.all_scores["gore"])
        assert verdict.categories["hate"] is (single_input.all_scores["toxic"] >= 0.5)
    assert found.usage == plain.usage


@pytest.mark.anyio
async def test_one_bad_place_in_a_long_text_is_enough(opener: Any, ask: Any, tmp_path: Path) -> None:
    """Moderation takes the surest window, unless the manifest says otherwise; a mean would hide it."""
    headed(tmp_path, "bert", "sequence", LABELS, problem_type="multi_label_classification")
    long = " ".join(["river"] * 100 + ["stone", "bread"] * 20 + ["light"] * 60)
    table = {"moderation": {"toxic": "hate"}}
    for options, how in (
        (table, "max"),
        ({**table, "windows": "mean"}, "mean"),
        ({**table, "windows": "first"}, "first"),
    ):
        made = opener(tmp_path, options)
        plain = (await ask(made, long, windows=how)).data[0]
        found = await made.answer(ModerationRequest(input=long))
        assert found.results[0].category_scores["hate"] == pytest.approx(plain.all_scores["toxic"])
        assert plain.windows == (1 if how == "first" else 4)


@pytest.mark.anyio
async def test_a_long_text_is_refused_in_words_of_the_manifest(opener: Any, tmp_path: Path) -> None:
    """A request for moderation has no `windows` to send."""
    headed(tmp_path, "bert", "sequence", LABELS)
    made = opener(tmp_path, {"moderation": {"toxic": "hate"}, "windows": "off"})
    for text in ("river " * 100, "a" * 5000):
        with pytest.raises(InputTooLong, match=r"shorten it, or set another options\.windows in the manifest$") as told:
            await made.answer(ModerationRequest(input=["stone", text]))
        assert told.value.param == "input[1]"


@pytest.mark.anyio
async def test_an_nli_model_moderates_by_labels_of_the_manifest(opener: Any, ask: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", ["contradiction", "neutral", "entailment"])
    labels = ["river", "bread"]
    options = {"labels": labels, "moderation": {"river": "violence", "bread": {"category": "hate", "threshold": 0.01}}}
    made = opener(tmp_path, options)
    plain = (await ask(made, "stone", multi_label=True)).data[0]
    verdict = (await made.answer(ModerationRequest(input="stone"))).results[0]
    assert verdict.category_scores["violence"] == pytest.approx(plain.all_scores["river"])
    assert verdict.category_scores["hate"] == pytest.approx(plain.all_scores["bread"])
    assert verdict.categories["hate"]
    assert verdict.flagged
