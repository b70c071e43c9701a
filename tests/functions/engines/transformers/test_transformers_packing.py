"""Packed batches: what they give is what padded ones give, for each architecture that can be packed; others stay."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tinymodels
import torch
import transformers

from functions.engines.transformers import packing

PACKABLE = [
    "bert",
    "roberta",
    "xlm-roberta",
    "distilbert",
    "modernbert",
    "modernbert-sliding",
    "qwen3",
    "qwen3-sliding",
]
NOT_PACKABLE = ["mpnet", "deberta-v2", "t5"]
LENGTHS = [[31, 17, 16, 16, 3, 1], [9], [6, 6, 6], [5, 5, 4, 4, 4], [2, 30], [3, 12, 3]]


def config(kind: str) -> Any:
    """Return a configuration, in which windows are far shorter than the texts where they slide."""
    made = tinymodels.configured(kind.removesuffix("-sliding"))
    if kind == "modernbert-sliding":
        small = {**tinymodels.SMALL, "num_hidden_layers": 4}
        made = transformers.ModernBertConfig(
            vocab_size=40, max_position_embeddings=128, pad_token_id=1, global_attn_every_n_layers=2,
            local_attention=8, **small,
        )  # fmt: skip
    if kind == "qwen3-sliding":
        made.use_sliding_window, made.sliding_window = True, 6
        made.layer_types = ["sliding_attention", "full_attention"]
    if hasattr(made, "use_cache"):
        made.use_cache = False
    return made


def shaken(model: Any) -> Any:
    """Return the model with weights whose effects are seen, biases and norms too."""
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model.eval().requires_grad_(False)


def made(kind: str) -> Any:
    torch.manual_seed(3)
    auto = transformers.AutoModelForTextEncoding if kind == "t5" else transformers.AutoModel
    return shaken(auto.from_config(config(kind)))


def batch(lengths: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, (items, tokens), with padding on the right."""
    generator = torch.Generator().manual_seed(sum(lengths))
    ids = torch.full((len(lengths), max(lengths)), 1)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(4, 40, (length,), generator=generator)
        mask[row, :length] = 1
    return ids, mask


def padded(model: Any, lengths: Sequence[int]) -> Any:
    ids, mask = batch(lengths)
    with torch.inference_mode():
        return model(input_ids=ids, attention_mask=mask)


def packed(model: Any, lengths: Sequence[int]) -> Any:
    ids, mask = batch(lengths)
    with torch.inference_mode(), packing.packed(packing.Batch(lengths, mask)):
        return model(input_ids=ids, attention_mask=mask)


def tokens(states: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Return the states of what is not padding."""
    return states[batch(lengths)[1].bool()]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_packing_and_unpacking(lengths: list[int]) -> None:
    ids, mask = batch(lengths)
    states = torch.randn(*ids.shape, 3)
    made_ = packing.Batch(lengths, mask)
    lying = made_.pack(states)
    count = sum(lengths)
    assert lying.shape == (1, made_.rows, 3)
    assert torch.equal(lying[0, :count], states[mask.bool()])
    assert torch.equal(made_.unpack(lying), states * mask.unsqueeze(-1))
    assert sum(made_.sizes) == sum(lengths)
    assert [length for length, count in made_.groups for _ in range(count)] == lengths


def test_few_numbers_of_rows_differ() -> None:
    """Each new one costs oneDNN a program; rounding costs less than a sixth of a batch, or some rows of a small one."""
    rows = {count: packing.Batch([count], torch.ones(1, count)).rows for count in range(1, 1025)}
    assert len(set(rows.values())) < 60
    assert all(count <= found < count + max(24, count / 6) for count, found in rows.items())


@pytest.mark.parametrize("tiles", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("lengths", [[70, 64, 50, 50, 50, 3], [600, 2], [1], [16, 16]], ids=str)
def test_attention_is_that_of_each_input_alone(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], dtype: torch.dtype, causal: bool, tiles: bool
) -> None:
    monkeypatch.setattr(packing, "_has_amx", lambda: tiles)
    _, mask = batch(lengths)
    made_ = packing.Batch(lengths, mask)
    torch.manual_seed(4)
    three = [torch.randn(1, made_.rows, 4 * 8).to(dtype).view(1, -1, 4, 8).transpose(1, 2) for _ in range(3)]
    module = torch.nn.Identity()
    module.is_causal = causal
    with packing.packed(made_):
        found, _ = packing._attention(module, *three, None, scaling=0.3, dropout=0.0, encoder_hidden_states=None)
    start = 0
    for length in lengths:
        one = (part[:, :, start : start + length].float() for part in three)
        alone = torch.nn.functional.scaled_dot_product_attention(*one, is_causal=causal, scale=0.3).transpose(1, 2)
        bound = 1e-5 if dtype is torch.float32 else 0.02
        torch.testing.assert_close(found[:, start : start + length].float(), alone, atol=bound, rtol=bound)
        start += length
    assert found.shape == (1, made_.rows, 4, 8)
    assert not found[:, start:].any()


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "distilbert", "modernbert"])
def test_attention_takes_the_plain_way(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Nothing that an architecture says of its attention stands in the way, which would cost time and fail no test."""
    model, ways = made(kind), []
    plainly = packing._plain_attention
    monkeypatch.setattr(packing, "_plain_attention", lambda *given: ways.append(1) or plainly(*given))
    packing.prepare(model)
    packed(model, [31, 3, 2])
    assert ways


@pytest.mark.parametrize("kind", PACKABLE)
def test_the_same_as_padded(kind: str) -> None:
    model = made(kind)
    plain = copy.deepcopy(model)
    assert packing.prepare(model)
    for lengths in LENGTHS:
        expected = tokens(padded(plain, lengths).last_hidden_state, lengths)
        assert expected.std() > 0.05
        for found in (packed(model, lengths), padded(model, lengths)):
            torch.testing.assert_close(tokens(found.last_hidden_state, lengths), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", PACKABLE)
def test_the_same_as_each_alone(kind: str) -> None:
    model = made(kind)
    plain = copy.deepcopy(model)
    assert packing.prepare(model)
    lengths = [40, 22, 22, 5, 2]
    ids, mask = batch(lengths)
    found = packed(model, lengths).last_hidden_state
    for row, length in enumerate(lengths):
        with torch.inference_mode():
            alone = plain(input_ids=ids[row : row + 1, :length], attention_mask=mask[row : row + 1, :length])
        torch.testing.assert_close(found[row, :length], alone.last_hidden_state[0], atol=1e-5, rtol=1e-5)


def test_layers_see_no_padding() -> None:
    model = made("bert")
    seen: list[tuple[int, ...]] = []
    model.encoder.layer[1].output.dense.register_forward_hook(lambda layer, args, output: seen.append(output.shape))
    packing.prepare(model)
    packed(model, [31, 3, 2])
    padded(model, [31, 3, 2])
    assert [tuple(shape) for shape in seen] == [(1, 56, 32), (3, 31, 32)]


@pytest.mark.parametrize("kind", NOT_PACKABLE)
def test_a_model_that_cannot_be_packed_is_left_as_it_is(kind: str) -> None:
    model = made(kind)
    lengths = [12, 7, 3]
    before = padded(model, lengths).last_hidden_state
    attention = model.config._attn_implementation
    assert not packing.prepare(model)
    assert model.config._attn_implementation == attention
    assert not any(layer._forward_pre_hooks or layer._forward_hooks for layer in model.modules())
    assert torch.equal(padded(model, lengths).last_hidden_state, before)
    assert torch.equal(packed(model, lengths).last_hidden_state, before)


def test_eager_attention_is_not_packed() -> None:
    model = transformers.AutoModel.from_config(config("bert"), attn_implementation="eager").eval()
    assert not packing.prepare(model)
    assert model.config._attn_implementation == "eager"


def test_a_module_without_layers_is_not_packed() -> None:
    assert not packing.prepare(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("head", ["sequence", "token"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "distilbert", "modernbert", "qwen3"])
def test_heads_give_the_same_logits(tmp_path: Path, kind: str, head: Any) -> None:
    folder = tinymodels.headed(tmp_path, kind, head, ["a", "b", "c"])
    auto = {
        "sequence": transformers.AutoModelForSequenceClassification,
        "token": transformers.AutoModelForTokenClassification,
    }[head]
    plain, model = (auto.from_pretrained(folder).eval() for _ in range(2))
    assert packing.prepare(model)
    for lengths in LENGTHS:
        expected, found = padded(plain, lengths).logits, packed(model, lengths).logits
        if head == "token":
            expected, found = tokens(expected, lengths), tokens(found, lengths)
        assert expected.std() > 1e-3
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_a_computation_that_fails_leaves_the_thread_as_it_was() -> None:
    model = made("bert")
    assert packing.prepare(model)
    expected = padded(model, [5, 3]).last_hidden_state
    ids, mask = batch([5, 3])
    with pytest.raises(RuntimeError), packing.packed(packing.Batch([5, 4], mask)):
        model(input_ids=ids, attention_mask=mask)  # lengths that are not the mask's
    assert torch.equal(padded(model, [5, 3]).last_hidden_state, expected)


def test_threads_compute_packed_and_padded_side_by_side() -> None:
    model = made("modernbert-sliding")
    plain = copy.deepcopy(model)
    assert packing.prepare(model)
    works = [(packed, [30, 9, 2]), (padded, [14, 14, 3]), (packed, [8, 7, 7])]
    inside = threading.Barrier(len(works), timeout=60)

    def meet(layer: Any, args: Any, output: Any) -> None:
        inside.wait()

    model.layers[1].register_forward_hook(meet)
    found: dict[int, list[torch.Tensor]] = {}

    def work(at: int) -> None:
        compute, lengths = works[at]
        found[at] = [tokens(compute(model, lengths).last_hidden_state, lengths) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for at, (_, lengths) in enumerate(works):
        expected = tokens(padded(plain, lengths).last_hidden_state, lengths)
        for one in found[at]:
            torch.testing.assert_close(one, expected, atol=1e-5, rtol=1e-5)
