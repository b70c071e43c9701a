"""Linear layers and the activations behind them: which are found, and that a model of fused ones says the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tinymodels
import torch
import transformers
from torch import nn

from functions.engines.transformers import fusion, linear
from functions.engines.transformers.fusion import LinearActivation
from functions.engines.transformers.linear import PrepackedLinear

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN")

IDS = torch.arange(4, 28).view(2, 12)


def model_of(kind: str, **changed: Any) -> Any:
    torch.manual_seed(3)
    config = tinymodels.configured(kind)
    config.update(changed)
    model = transformers.AutoModel.from_config(config).eval().requires_grad_(False)
    for weight in model.parameters():
        weight.add_(torch.randn_like(weight) * 0.2)
    return model


def pairs_of(model: nn.Module, run: Callable[[], Any]) -> list[LinearActivation]:
    with torch.inference_mode(), fusion.recording(model) as found:
        run()
    return found


@pytest.mark.parametrize(
    ("kind", "changed", "layers"),
    [
        ("bert", {}, 2),
        ("bert", {"hidden_act": "gelu_new"}, 2),
        ("bert", {"hidden_act": "gelu_pytorch_tanh"}, 2),
        ("bert", {"hidden_act": "gelu_fast"}, 2),
        ("bert", {"hidden_act": "relu"}, 2),
        ("bert", {"hidden_act": "silu"}, 2),
        ("bert", {"hidden_act": "tanh"}, 2),
        ("bert", {"hidden_act": "quick_gelu"}, 0),
        ("roberta", {}, 2),
        ("xlm-roberta", {}, 2),
        ("distilbert", {}, 2),
        ("deberta-v2", {}, 2),
        ("modernbert", {}, 0),
        ("qwen3", {}, 2),
    ],
    ids=str,
)
def test_architectures(kind: str, changed: dict[str, Any], layers: int) -> None:
    model = model_of(kind, **changed)

    def run() -> torch.Tensor:
        with torch.inference_mode():
            found: torch.Tensor = model(input_ids=IDS).last_hidden_state
        return found

    before = run()
    pooled = "tanh" if kind in ("bert", "roberta", "xlm-roberta") else ""
    pairs = [pair for pair in pairs_of(model, run) if pair.activation.operation != pooled or "pooler" not in pair.layer]
    assert len(pairs) == layers
    linear.replace(model, PrepackedLinear)
    fusion.fuse(model, pairs)
    assert sum(type(model.get_submodule(pair.place)) is nn.Identity for pair in pairs) == layers
    torch.testing.assert_close(run(), before, atol=1e-4, rtol=1e-4)


class Line(nn.Module):
    """Two layers and an activation, called as `way` says."""

    def __init__(self, way: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.way = way
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.act = nn.GELU()
        self.again = self.act if way == "an activation under two names" else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "a layer's output changed":
            return self.act(self.one(x) + 1)  # type: ignore[no-any-return]
        if self.way == "an activation of two layers":
            return self.act(self.one(x)) + self.act(self.other(x))  # type: ignore[no-any-return]
        if self.way == "a layer called without its activation":
            return self.act(self.one(x)) + self.one(x + 1)  # type: ignore[no-any-return]
        if self.way == "an activation called without its layer":
            return self.act(self.one(x)) + self.act(x)  # type: ignore[no-any-return]
        if self.way == "a layer before the one before":
            given = self.one(x)
            return self.other(x) + self.act(given)  # type: ignore[no-any-return]
        if self.way == "by name":
            return self.act(input=self.one(x))  # type: ignore[no-any-return]
        return self.act(self.one(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("way", "found"),
    [
        ("plain", True),
        ("a layer's output changed", False),
        ("an activation of two layers", False),
        ("a layer called without its activation", False),
        ("an activation called without its layer", False),
        ("a layer before the one before", False),
        ("an activation under two names", False),
        ("by name", False),
    ],
)
def test_only_what_is_called_for_each_other_is_a_pair(way: str, found: bool) -> None:
    model = Line(way)
    x = torch.randn(3, 8)
    pairs = pairs_of(model, lambda: model(x))
    assert [(pair.layer, pair.place) for pair in pairs] == ([("one", "act")] if found else [])


def test_nothing_watches_a_model_afterwards() -> None:
    model = Line("plain")
    with pytest.raises(RuntimeError), fusion.recording(model):
        model(torch.randn(3, 9))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_layers_that_were_not_laid_out_keep_their_activations() -> None:
    model = Line("plain")
    x = torch.randn(3, 8)
    before = model(x)
    fusion.fuse(model, pairs_of(model, lambda: model(x)))
    assert type(model.act) is nn.GELU
    assert torch.equal(model(x), before)
