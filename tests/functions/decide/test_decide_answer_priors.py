"""Priors by themselves, without a model: each question's once, those asked longest ago forgotten first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from functions.decide import answer_priors as module
from functions.decide.answer_priors import Priors

pytestmark = pytest.mark.anyio


class Model:
    """Counts what it scores."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def score(self, prefix: Any, branches: list[str]) -> Any:
        self.asked.append(branches)
        return SimpleNamespace(logprobs=[np.array([-1.0, -2.0])] * len(branches))


class Threads:
    async def run(self, work: Any) -> Any:
        return work(lambda: None)


def ask(name: str, kind: str = "choice") -> Any:
    return SimpleNamespace(
        question=SimpleNamespace(type=kind),
        prompt=SimpleNamespace(user="u", model=name),
        spellings=SimpleNamespace(token_ids=[(1,), (2,)], answer_logprobs=lambda row: row),
    )


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def priors(model: Model, monkeypatch: pytest.MonkeyPatch) -> Priors:
    monkeypatch.setattr(module, "_SIZE", 3)
    tokenizer = SimpleNamespace(tokenize_without_input=lambda asked, check: ((), [one.prompt.model for one in asked]))
    return Priors(model, tokenizer, Threads())  # type: ignore[arg-type]


async def test_a_question_is_computed_once(model: Model, priors: Priors) -> None:
    assert await priors.get([ask("a"), ask("b"), ask("a")]) == [[-1.0, -2.0]] * 3
    assert await priors.get([ask("b"), ask("c")]) == [[-1.0, -2.0]] * 2
    assert model.asked == [["a", "b"], ["c"]]


async def test_those_asked_longest_ago_are_forgotten(model: Model, priors: Priors) -> None:
    for name in "abcad":
        await priors.get([ask(name)])
    assert model.asked == [["a"], ["b"], ["c"], ["d"]]
    await priors.get([ask("a"), ask("c"), ask("d"), ask("b")])
    assert model.asked[4:] == [["b"]]


async def test_a_predicate_has_no_prior(model: Model, priors: Priors) -> None:
    assert await priors.get([ask("a", "predicate")]) == [None]
    assert model.asked == []
