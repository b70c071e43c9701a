"""How far two answers of a model are apart, and whether that may be served."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest
import tinymodels
import torch

from functions.engines.checkpoint import tokenizer
from functions.engines.checkpoint.folder import Folder
from functions.engines.transformers import numerics
from functions.engines.transformers.numerics import BF16, INT8, SAME, Bounds, CheckOutput, Difference

NAN = float("nan")


def vectors(*rows: list[float]) -> CheckOutput:
    return CheckOutput(rows=torch.tensor(rows), of_logits=False)


def logits(*rows: list[float]) -> CheckOutput:
    return CheckOutput(rows=torch.tensor(rows), of_logits=True)


def test_vectors_are_compared_by_the_least_cosine() -> None:
    found = numerics.compare(vectors([1, 0], [0, 2], [1, 1]), vectors([5, 0], [0, 1], [1, 0]))
    assert not found.of_logits
    assert found.value == pytest.approx(0.5**0.5)


def test_logits_are_compared_by_the_largest_difference_beside_their_spread() -> None:
    found = numerics.compare(logits([-4, 6], [0, 1]), logits([-4, 5.5], [0.25, 1]))
    assert found.of_logits
    assert found.value == pytest.approx(0.5 / 10)


def test_logits_that_are_all_alike_have_a_spread_of_one() -> None:
    assert numerics.compare(logits([0.1, 0.1]), logits([0.1, 0.13])).value == pytest.approx(0.03)


@pytest.mark.parametrize("make", [vectors, logits])
@pytest.mark.parametrize("bad", [NAN, float("inf"), float("-inf")])
@pytest.mark.parametrize("bounds", [BF16, INT8, SAME])
def test_what_is_no_number_is_never_within(make: Any, bad: float, bounds: Bounds) -> None:
    good, other = make([1, 2], [3, 4]), make([1, 2], [bad, 4])
    assert numerics.compare(good, good).within(bounds)
    assert not numerics.compare(good, other).within(bounds)
    assert not numerics.compare(other, other).within(bounds)


@pytest.mark.parametrize("make", [vectors, logits])
def test_the_same_is_within_every_bound(make: Any) -> None:
    one = make([0.3, -2.0, 1e-3], [4.0, 0.0, 1.0])
    assert all(numerics.compare(one, one).within(bounds) for bounds in (BF16, INT8, SAME))


@pytest.mark.parametrize(
    ("of_logits", "value", "within"),
    [
        (False, 1.0, True),
        (False, 0.99, True),
        (False, 0.9899, False),
        (False, -1.0, False),
        (True, 0.0, True),
        (True, 0.1, True),
        (True, 0.101, False),
    ],
)
def test_bounds(of_logits: bool, value: float, within: bool) -> None:
    assert Difference(of_logits=of_logits, value=value).within(Bounds(cosine=0.99, share=0.1)) is within


def test_it_is_told_with_its_bound() -> None:
    assert (
        Difference(of_logits=False, value=0.97531).describe(BF16) == "cosine 0.9753 to fp32, at least 0.999 is needed"
    )
    told = Difference(of_logits=True, value=0.1234).describe(BF16)
    assert told == "logits differ by 12.3% of their spread, at most 5.0% may"


def test_bounds_grow_from_the_same_to_eight_bits() -> None:
    assert SAME.cosine > BF16.cosine > INT8.cosine
    assert SAME.share < BF16.share < INT8.share


@pytest.fixture
def tokens(tmp_path: Path) -> Any:
    made = tokenizer.load(Folder(tinymodels.tiny(tmp_path)), 1)
    yield made
    made.close()


@pytest.mark.parametrize("longest", [4, 20, 512])
def test_texts_become_items_of_different_lengths(tokens: Any, longest: int) -> None:
    lengths = [len(item.ids) for item in numerics.items(tokens, longest)]
    assert len(lengths) == len(numerics.TEXTS)
    assert lengths == sorted(lengths, reverse=True)
    assert 1 <= lengths[-1] <= lengths[0] <= longest
    assert len(set(lengths)) > 2 or longest == 4


def output(**parts: torch.Tensor) -> Any:
    return types.SimpleNamespace(**parts)


def test_without_a_task_it_is_the_mean_over_tokens() -> None:
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 6.0]], [[5.0, 5.0], [999.0, NAN]]])
    mask = torch.tensor([[1, 1], [1, 0]])
    hidden[1, 1] = 999
    found = numerics.check_output(output(last_hidden_state=hidden), mask)
    assert not found.of_logits
    assert found.rows.tolist() == [[2, 4], [5, 5]]


def test_what_the_task_makes_of_it_comes_first() -> None:
    mask = torch.ones(2, 2)
    found = numerics.check_output(
        output(logits=torch.zeros(2, 3), last_hidden_state=torch.ones(2, 2, 3)),
        mask,
        lambda out, given: out.last_hidden_state[:, 0] * given.sum(),
    )
    assert not found.of_logits
    assert found.rows.tolist() == [[4.0] * 3] * 2


def test_logits_of_texts_are_taken_whole_and_in_fp32() -> None:
    given = torch.randn(2, 3, dtype=torch.bfloat16)
    found = numerics.check_output(output(logits=given), torch.ones(2, 5))
    assert found.of_logits
    assert found.rows.dtype == torch.float32
    assert torch.equal(found.rows, given.float())


def test_logits_of_tokens_are_those_of_no_padding() -> None:
    given, mask = torch.randn(2, 3, 4), torch.tensor([[1, 1, 1], [1, 0, 0]])
    assert torch.equal(numerics.check_output(output(logits=given), mask).rows, torch.cat([given[0], given[1, :1]]))


def test_logits_of_words_are_those_of_the_last_token() -> None:
    given, mask = torch.randn(2, 3, 5000), torch.tensor([[1, 1, 1], [1, 1, 0]])
    assert torch.equal(numerics.check_output(output(logits=given), mask).rows, torch.stack([given[0, 2], given[1, 1]]))
