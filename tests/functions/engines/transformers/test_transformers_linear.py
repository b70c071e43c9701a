"""Linear layers laid out anew or in 8 bits: what they give beside plain ones, and which layers are replaced."""

from __future__ import annotations

from typing import Any

import pytest
import tinymodels
import torch
import transformers
from torch import nn

from functions.engines.transformers import linear, precision
from functions.engines.transformers.linear import Int8Linear, PrepackedLinear

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN")

SHAPES = [(1, 64), (1, 1, 64), (3, 7, 64), (2, 600, 64), (5, 64)]


def layer(*, bias: bool = True, size: tuple[int, int] = (64, 48)) -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(*size, bias=bias).requires_grad_(False)


def copied(plain: nn.Linear) -> nn.Linear:
    made = nn.Linear(plain.in_features, plain.out_features, bias=plain.bias is not None)
    made.load_state_dict(plain.state_dict())
    return made.requires_grad_(False)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prepacked_gives_the_same(shape: tuple[int, ...], bias: bool) -> None:
    plain = layer(bias=bias)
    x = torch.randn(shape)
    found = PrepackedLinear(copied(plain))(x)
    assert found.shape == (*shape[:-1], 48)
    torch.testing.assert_close(found, plain(x), atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(not precision.has_native_bf16(), reason="this processor does not compute in bf16")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prepacked_in_bf16(shape: tuple[int, ...], bias: bool) -> None:
    plain = layer(bias=bias).to(torch.bfloat16)
    x = torch.randn(shape).to(torch.bfloat16)
    found = PrepackedLinear(plain)(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), plain.float()(x.float()), atol=0.02, rtol=0.01)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_eight_bits_are_near(shape: tuple[int, ...], bias: bool) -> None:
    plain = layer(bias=bias)
    x = torch.randn(shape)
    found, expected = Int8Linear(copied(plain))(x), plain(x)
    assert found.shape == expected.shape
    assert found.dtype == torch.float32
    # Half a step of 127 for each of 64 factors, of which errors mostly cancel.
    step = x.abs().amax() * plain.weight.abs().amax() / 127
    assert (found - expected).abs().max() < step * 64**0.5
    assert torch.nn.functional.cosine_similarity(found, expected, dim=-1).min() > 0.999


def test_eight_bits_are_really_eight_bits() -> None:
    plain = layer()
    x = torch.randn(4, 64)
    assert not torch.allclose(Int8Linear(copied(plain))(x), plain(x), atol=1e-6)


def test_eight_bits_of_whole_numbers_are_exact() -> None:
    plain = nn.Linear(8, 3, bias=False).requires_grad_(False)
    plain.weight.copy_(torch.randint(-126, 127, (3, 8)))
    plain.weight[:, 0] = 127
    x = torch.randint(-126, 127, (5, 8)).float()
    x[:, 1] = -127
    torch.testing.assert_close(Int8Linear(copied(plain))(x), plain(x), atol=1e-2, rtol=1e-5)


def test_each_token_and_each_output_has_a_scale_of_its_own() -> None:
    plain = layer(bias=False)
    plain.weight[0] *= 1000
    plain.weight[1] *= 0.001
    x = torch.randn(6, 64)
    x[0] *= 1000
    x[1] *= 0.001
    found, expected = Int8Linear(copied(plain))(x), plain(x)
    for outputs in ([0], [1], range(2, 48)):
        for rows in ([0], [1], range(2, 6)):
            one, other = found[list(rows)][:, list(outputs)], expected[list(rows)][:, list(outputs)]
            size = (x[list(rows)].norm(dim=1).max() * plain.weight[list(outputs)].norm(dim=1).max()).item()
            assert (one - other).abs().max() < 0.02 * size


def test_eight_bits_of_nothing_are_the_bias() -> None:
    plain = layer()
    torch.testing.assert_close(Int8Linear(copied(plain))(torch.zeros(2, 64)), plain.bias.expand(2, 48))
    plain.weight.zero_()
    torch.testing.assert_close(Int8Linear(copied(plain))(torch.randn(2, 64)), plain.bias.expand(2, 48))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_eight_bits_hide_no_number_that_is_not_finite(bad: float) -> None:
    x = torch.randn(3, 64)
    x[1, 5] = bad
    found = Int8Linear(layer())(x)
    assert not found[1].isfinite().any()
    assert found[[0, 2]].isfinite().all()


@pytest.mark.parametrize("make", [PrepackedLinear, Int8Linear])
def test_inputs_may_lie_in_any_order(make: Any) -> None:
    plain = layer()
    x = torch.randn(64, 5, 3).permute(2, 1, 0)
    torch.testing.assert_close(make(copied(plain))(x), plain(x), atol=0.05, rtol=0.05)


@pytest.mark.parametrize("make", [PrepackedLinear, Int8Linear])
def test_every_linear_layer_of_a_model_is_replaced(make: Any) -> None:
    torch.manual_seed(2)
    model = transformers.AutoModel.from_config(tinymodels.configured("bert")).eval().requires_grad_(False)
    ids = torch.arange(4, 16).view(2, 6)
    before = model(input_ids=ids).last_hidden_state
    plain = sum(type(module) is nn.Linear for module in model.modules())
    assert linear.replace(model, make) == plain == 2 * 6 + 1
    assert not any(type(module) is nn.Linear for module in model.modules())
    assert linear.replace(model, make) == 0
    after = model(input_ids=ids).last_hidden_state
    bound = 0.15 if make is Int8Linear else 1e-5
    torch.testing.assert_close(after, before, atol=bound, rtol=bound)


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = layer(size=(16, 16))
        self.inner = nn.Sequential(self.one, nn.ReLU(), layer(size=(16, 16)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(self.one(x))
        return found


def test_a_shared_layer_is_replaced_once_and_stays_shared() -> None:
    model = Shared()
    x = torch.randn(4, 16)
    before = model(x)
    made: list[nn.Linear] = []

    def make(plain: nn.Linear) -> nn.Module:
        made.append(plain)
        return PrepackedLinear(plain)

    assert linear.replace(model, make) == 2
    assert len(made) == 2
    assert isinstance(model.one, PrepackedLinear)
    assert model.one is model.inner[0]
    torch.testing.assert_close(model(x), before, atol=1e-5, rtol=1e-5)


def test_a_layer_under_two_names_of_one_parent_is_replaced_under_both() -> None:
    plain = layer(size=(16, 16))
    model = nn.Sequential(plain, nn.ReLU(), plain)
    x = torch.randn(4, 16)
    before = model(x)
    assert linear.replace(model, PrepackedLinear) == 1
    assert model[0] is model[2]
    torch.testing.assert_close(model(x), before, atol=1e-5, rtol=1e-5)


def test_layers_that_share_their_weight_alone_are_each_replaced() -> None:
    model = nn.Sequential(layer(size=(16, 16)), layer(size=(16, 16)))
    model[1].weight = model[0].weight
    x = torch.randn(4, 16)
    before = model(x)
    assert linear.replace(model, PrepackedLinear) == 2
    torch.testing.assert_close(model(x), before, atol=1e-5, rtol=1e-5)


class Derived(nn.Linear):
    """A layer whose owner may look into it."""


def test_derived_classes_are_spared() -> None:
    model = nn.Sequential(Derived(4, 4), nn.Linear(4, 4), nn.MultiheadAttention(4, 2))
    assert linear.replace(model, PrepackedLinear) == 1
    assert type(model[0]) is Derived
    assert model[0].weight.shape == (4, 4)
    assert isinstance(model[1], PrepackedLinear)
    assert model[2].out_proj.weight.shape == (4, 4)


@pytest.mark.parametrize("kind", ["bert", "qwen3", "roberta", "distilbert", "modernbert"])
def test_output_embeddings_are_spared(kind: str) -> None:
    auto = transformers.AutoModelForCausalLM if kind == "qwen3" else transformers.AutoModelForMaskedLM
    torch.manual_seed(4)
    model = auto.from_config(tinymodels.configured(kind)).eval().requires_grad_(False)
    ids = torch.arange(4, 16).view(2, 6)
    before = model(input_ids=ids).logits
    assert linear.replace(model, PrepackedLinear) > 0
    output = model.get_output_embeddings()
    assert type(output) is nn.Linear
    assert output.weight.shape == (40, 32)
    assert model.get_input_embeddings().weight.shape == (40, 32)
    torch.testing.assert_close(model(input_ids=ids).logits, before, atol=1e-5, rtol=1e-5)
