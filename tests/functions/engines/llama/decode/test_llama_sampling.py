"""Sampling selects what llama.cpp's chain over the whole vocabulary selects, at less cost."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from functions.engines.llama.decode.candidates import Candidates
from functions.engines.llama.decode.penalties import Penalty
from functions.engines.llama.decode.sampling import NonFiniteLogits, Sampler, Sampling
from functions.engines.llama.model.native_library import lib
from host.errors import InvalidRequest

SIZE = 5000
Row = NDArray[np.float32]


def rows(count: int, spread: float = 4.0, seed: int = 0) -> list[Row]:
    dice = np.random.default_rng(seed)
    return [(dice.standard_normal(SIZE) * spread).astype(np.float32) for _ in range(count)]


class Chain:
    """llama.cpp's samplers over every token, in the order it has them in its own tools."""

    def __init__(self, *samplers: Any) -> None:
        self.chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        for sampler in samplers:
            lib.llama_sampler_chain_add(self.chain, sampler)

    def sample(self, row: Row) -> int:
        data = (lib.llama_token_data * SIZE)(*[(token, float(logit), 0.0) for token, logit in enumerate(row)])
        array = lib.llama_token_data_array(data=data, size=SIZE, selected=-1, sorted=False)
        lib.llama_sampler_apply(self.chain, ctypes.byref(array))
        token = int(array.data[array.selected].id)
        lib.llama_sampler_accept(self.chain, token)
        return token


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("top_k", [1, 40, 600, 0])
def test_the_same_seed_draws_what_llama_cpp_draws(top_k: int, spread: float) -> None:
    wanted = Sampling(temperature=0.9, top_k=top_k, top_p=0.9, min_p=0.02, seed=7)
    mine = Sampler(SIZE, wanted, [1], context=512)
    first = [lib.llama_sampler_init_top_k(top_k)] if top_k else []
    chain = Chain(
        *first,
        lib.llama_sampler_init_top_p(0.9, 1),
        lib.llama_sampler_init_min_p(0.02, 1),
        lib.llama_sampler_init_temp(0.9),
        lib.llama_sampler_init_dist(7),
    )
    for row in rows(12, spread):
        assert mine.sample(row.copy()) == chain.sample(row)
    mine.close()


def test_candidates_contain_the_most_likely_tokens() -> None:
    candidates = Candidates(SIZE, 50)
    for row in [*rows(5, 0.001), *rows(5, 100.0), *rows(5, 1.0)]:
        array = candidates.gather(row, int(row.argmax()))
        found = {array.data[index].id for index in range(array.size)}
        assert set(np.argsort(row)[-50:].tolist()) <= found


def test_few_candidates_are_selected_if_they_suffice() -> None:
    candidates = Candidates(SIZE, 40)
    sizes = [candidates.gather(row, int(row.argmax())).size for row in rows(60, 4.0)]
    assert max(sizes[40:]) < SIZE / 3


def test_excluded_tokens_are_no_candidates() -> None:
    row = np.full(SIZE, -np.inf, np.float32)
    row[:3] = 1.0
    array = Candidates(SIZE, 40).gather(row, 0)
    assert array.size == 3


@pytest.mark.parametrize(
    "fields", [{"repeat": 1.3}, {"frequency": 0.7}, {"presence": 0.9}, {"repeat": 1.1, "frequency": -0.4}]
)
def test_penalties_are_llama_cpps(fields: dict[str, float]) -> None:
    window = 8
    mine = Penalty(window, **fields)
    told = {"repeat": 1.0, "frequency": 0.0, "presence": 0.0} | fields
    theirs = Chain(
        lib.llama_sampler_init_penalties(SIZE, window, told["repeat"], told["frequency"], told["presence"]),
        lib.llama_sampler_init_greedy(),
    )
    for row in rows(30):
        # A few likely tokens, so that some of them come again.
        row[:5] += 14
        changed = row.copy()
        mine.apply(changed)
        token = int(changed.argmax())
        mine.accept([token])
        assert token == theirs.sample(row)


def test_greedy_takes_the_likeliest_and_biases_count() -> None:
    (row,) = rows(1)
    best = int(row.argmax())
    assert Sampler(SIZE, Sampling(temperature=0), [1], context=64).sample(row.copy()) == best
    second = int(np.argsort(row)[-2])
    banned = Sampling(temperature=0, banned=(best,))
    assert Sampler(SIZE, banned, [1], context=64).sample(row.copy()) == second
    wanted = Sampling(temperature=0, logit_bias={17: 100.0})
    assert Sampler(SIZE, wanted, [1], context=64).sample(row.copy()) == 17


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nonfinite_logits(temperature: float, value: float) -> None:
    (row,) = rows(1)
    row[77] = value
    with pytest.raises(NonFiniteLogits):
        Sampler(SIZE, Sampling(temperature=temperature), [1], context=64).sample(row)


def test_every_token_excluded() -> None:
    (row,) = rows(1)
    sampling = Sampling(temperature=0, banned=tuple(range(SIZE)))
    with pytest.raises(InvalidRequest, match="every token"):
        Sampler(SIZE, sampling, [1], context=64).sample(row)


def test_a_penalty_makes_a_token_less_likely_on_either_side_of_zero() -> None:
    penalty = Penalty(8, repeat=2.0)
    penalty.accept([0, 1, 2])
    row = np.array([4.0, -4.0, 0.0, -4.0], np.float32)
    penalty.apply(row)
    assert row.tolist() == [2.0, -8.0, 0.0, -4.0]
