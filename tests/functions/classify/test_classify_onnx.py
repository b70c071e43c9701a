"""The same classifiers exported to ONNX: what torch answers, the other engine answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tinymodels import headed

from functions.classify.api import ModerationRequest

onnxmodels = pytest.importorskip("onnxmodels")
pytestmark = pytest.mark.anyio

TEXTS = ["river stone", "light", "number window garden paper winter music train " * 30]
NLI = ["contradiction", "neutral", "entailment"]


def both(opener: Any, folder: Path, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
    onnxmodels.export(folder, "sequence", keep=True)
    return opener(folder, options), opener(folder, options, engine="onnx")


def same(one: Any, other: Any) -> bool:
    assert one.usage == other.usage
    pairs = [
        (a.all_scores[label], b.all_scores[label])
        for a, b in zip(one.data, other.data, strict=True)
        for label in a.all_scores
    ]
    return all(abs(a - b) < 1e-4 for a, b in pairs) and len({round(a, 5) for a, _ in pairs}) > 2


@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification"])
async def test_labels_of_its_own(opener: Any, ask: Any, tmp_path: Path, problem: str) -> None:
    headed(tmp_path, "bert", "sequence", ["sport", "science", "garden"], problem_type=problem)
    torch, onnx = both(opener, tmp_path)
    assert same(await ask(torch, TEXTS), await ask(onnx, TEXTS))
    assert onnx.info().detail["activation"] == torch.info().detail["activation"]


async def test_zero_shot_and_moderation(opener: Any, ask: Any, tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", NLI)
    torch, onnx = both(opener, tmp_path, {"labels": ["music", "train"], "moderation": {"train": "violence"}})
    assert same(await ask(torch, TEXTS), await ask(onnx, TEXTS))
    scores = [(await one.answer(ModerationRequest(input=TEXTS))).results[0].category_scores for one in (torch, onnx)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    assert scores[0]["violence"] > 0
