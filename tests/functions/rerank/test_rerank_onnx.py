"""The same cross-encoders exported to ONNX: what torch answers, the other engine answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rerankers import Opener, ask
from tinymodels import headed

from host.errors import LoadFailed

onnxmodels = pytest.importorskip("onnxmodels")
pytestmark = pytest.mark.anyio

QUERY = "river light"
DOCUMENTS = ["stone", "light river window garden", "paper winter music train bread letter number", "bread " * 40]


@pytest.mark.parametrize(
    ("labels", "config"),
    [
        (["x"], {}),
        (["x"], {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}),
        (["irrelevant", "relevant"], {}),
    ],
)
async def test_scores_are_those_of_torch(
    opener: Opener, tmp_path: Path, labels: list[str], config: dict[str, Any]
) -> None:
    folder = onnxmodels.export(headed(tmp_path, "bert", "sequence", labels, **config), "sequence", keep=True)
    torch, onnx = opener(folder), opener(folder, engine="onnx")
    for raw in (False, True):
        expected = await ask(torch, QUERY, DOCUMENTS, raw_scores=raw)
        found = await ask(onnx, QUERY, DOCUMENTS, raw_scores=raw)
        assert found.scores == pytest.approx(expected.scores, abs=1e-4)
        assert found.usage == expected.usage and len({round(score, 5) for score in found.scores}) == 4


def test_the_self_test_looks_here_too(opener: Opener, tmp_path: Path) -> None:
    folder = onnxmodels.export(headed(tmp_path, "bert", "sequence", ["x"]), "sequence")
    with pytest.raises(LoadFailed, match="self-test"):
        opener(folder, {"self_test": True}, engine="onnx")


@pytest.mark.parametrize("method", ["cosine", "yes_no"])
async def test_other_methods_are_refused(opener: Opener, tmp_path: Path, method: str) -> None:
    folder = onnxmodels.export(headed(tmp_path, "bert", "sequence", ["x"]), "sequence")
    with pytest.raises(LoadFailed, match=f"{method} is not served by the onnx engine"):
        opener(folder, {"method": method}, engine="onnx")
