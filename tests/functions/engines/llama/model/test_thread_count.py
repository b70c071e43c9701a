"""The search for the number of threads, on machines that are a formula."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from functions.engines.llama.model.thread_count import ThreadCount

Machine = Callable[[int, int], float]
"""Maps (threads, step) to the milliseconds of that step."""


def idle(threads: int, step: int) -> float:
    return 1 + 12 / threads


def one_core_taken(cores: int) -> Machine:
    return lambda threads, step: idle(threads, step) * (4 if threads == cores else 1)


def later(first: Machine, second: Machine, at: int) -> Machine:
    return lambda threads, step: first(threads, step) if step < at else second(threads, step)


def run(most: int, machine: Machine, steps: int, tokens: int = 1, noise: float = 0.0) -> list[int]:
    """Return the threads of each step."""
    draw = random.Random(7)
    count = ThreadCount(most)
    used = []
    for step in range(steps):
        threads = count.of(tokens)
        used.append(threads)
        count.record(tokens, machine(threads, step) * tokens * (1 + noise * draw.random()))
    return used


@pytest.mark.parametrize("most", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_idle_cores_are_used_and_trials_are_rare(most: int, noise: float) -> None:
    used = run(most, idle, 4000, noise=noise)
    assert used.count(most) > 3900


@pytest.mark.parametrize("most", [2, 4, 8])
def test_a_taken_core_is_left_alone_within_a_few_dozen_steps(most: int) -> None:
    used = run(most, later(idle, one_core_taken(most), 1000), 3000)
    assert set(used[:16]) == {most}
    assert sum(threads == most for threads in used[1060:]) < 60


def test_a_process_that_was_there_first_is_found_by_the_first_trial() -> None:
    assert run(2, one_core_taken(2), 140)[40:].count(1) > 90


@pytest.mark.parametrize("most", [2, 4, 8])
def test_a_core_that_is_free_again_is_used_again(most: int) -> None:
    used = run(most, later(one_core_taken(most), idle, 1000), 6000)
    assert used[900:1000].count(most) < 20
    assert used[-1000:].count(most) > 950


def test_steps_of_other_sizes_neither_count_nor_are_tried() -> None:
    """Prompts come between the steps of a trial, and are computed with the count that is best so far."""
    count = ThreadCount(2)
    chunks = []
    for step in range(200):
        tokens = 40 if step % 3 else 4
        threads = count.of(tokens)
        count.record(tokens, tokens * idle(threads, step))
        if tokens == 40 and count.of(4) == 1:
            chunks.append(threads)
    assert count.of(4) == count.of(512) == 2
    assert set(chunks) <= {2}


def test_a_trial_that_its_size_leaves_is_given_up() -> None:
    count = ThreadCount(2)
    for _ in range(16):
        count.record(4, 1.0)
    assert count.of(4) == 2
    for _ in range(6):
        count.record(4, 1.0)
    assert count.of(4) == 1
    for _ in range(20):
        count.record(7, 1.0)
    assert count.of(4) == 2


def test_a_hopeless_trial_ends_early() -> None:
    used = run(2, lambda threads, step: 100.0 if threads == 1 else 1.0, 40)
    assert used.count(1) == 2


def test_one_core_is_never_searched() -> None:
    assert run(1, idle, 100) == [1] * 100


def test_slow_growth_of_steps_begins_no_trials() -> None:
    """A cache that fills makes every step a little slower."""
    used = run(2, lambda threads, step: idle(threads, step) * (1 + step / 2000), 4000)
    assert used.count(1) < 20
