"""Prefill budget: no starvation, short prompts first, long ones stall generation for one chunk only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.engines.llama.decode.prefill_budget import BURST, STEADY, PrefillBudget, share

BATCH = 512


def paced(seconds: float, batch: int = BATCH, chunk: int | None = None) -> PrefillBudget:
    """A pace that has learned how long a token takes."""
    pace = PrefillBudget(batch, chunk)
    for _ in range(20):
        pace.learn(100, seconds * 100)
    return pace


@given(st.lists(st.integers(2, 5000), max_size=20), st.integers(0, BATCH), st.booleans(), st.floats(1e-5, 1))
def test_shares_fit_and_the_oldest_prompt_progresses(pending: list[int], room: int, beside: bool, cost: float) -> None:
    pace = paced(cost)
    shares = share(pending, room, pace, beside=beside)
    assert len(shares) == len(pending)
    assert all(0 <= given <= wanted for given, wanted in zip(shares, pending, strict=True))
    assert sum(shares) <= min(room, pace.burst)
    if pending and room:
        assert shares[0] > 0, "whoever is oldest comes further in every step"


@given(st.lists(st.integers(2, 5000), min_size=1, max_size=20), st.floats(1e-5, 1))
def test_long_prompts_stall_generation_for_one_chunk(pending: list[int], cost: float) -> None:
    pace = paced(cost)
    shares = share(pending, BATCH, pace, beside=True)
    long = [given for given, wanted in zip(shares, pending, strict=True) if wanted > pace.long]
    assert sum(long) <= pace.steady


def test_a_long_prompt_alone_takes_the_whole_batch() -> None:
    pace = paced(1 / 1000)
    assert share([5000], BATCH, pace, beside=False) == [pace.burst]
    assert share([5000], BATCH, pace, beside=True) == [pace.steady]


def test_short_prompts_that_come_together_are_computed_together() -> None:
    pace = paced(1 / 1000)
    assert share([40] * 8, BATCH, pace, beside=True) == [40] * 8


def test_equal_prompts_are_computed_one_after_the_other() -> None:
    pace = paced(1 / 200)
    assert pace.burst < 120
    shares = share([60, 60, 60], BATCH, pace, beside=False)
    assert shares[0] == 60 and shares[2] == 0, "the first answer begins while the last prompt still waits"


def test_a_short_prompt_overtakes_a_long_one() -> None:
    pace = paced(1 / 1000)
    old, young = share([5000, 20], BATCH, pace, beside=True)
    assert young == 20 and old > 0


def test_the_oldest_prompt_is_never_starved() -> None:
    pace = paced(1 / 1000)
    left, steps = 1000, 0
    while left:
        left -= share([left, *[50] * 30], BATCH, pace, beside=True)[0]
        steps += 1
        assert steps < 200


@pytest.mark.parametrize("cost", [1e-5, 1e-3, 1e-2, 0.2])
def test_the_budget_follows_measured_times(cost: float) -> None:
    pace = paced(cost)
    assert pace.steady <= pace.burst <= BATCH
    for tokens, seconds in ((pace.steady, STEADY), (pace.burst, BURST)):
        assert tokens in (8, BATCH) or 0.6 * seconds <= tokens * cost <= seconds * 1.001


def test_small_steps_are_not_measured() -> None:
    pace = PrefillBudget(BATCH)
    before = pace.steady
    pace.learn(8, 10.0)
    assert pace.steady == before


def test_a_fixed_chunk() -> None:
    assert paced(1e-5, chunk=100).steady == 100
    assert paced(1.0, chunk=100).steady == 100
    assert paced(1.0, batch=64, chunk=100).steady == 64
