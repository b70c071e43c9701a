"""Builds answers from log-probabilities: predicate, choice, score, or a refusal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from functions.decide.answer_spellings import logsumexp, softmax
from functions.decide.api import (
    Answer,
    ChoiceAnswer,
    ChoiceProbability,
    PredicateAnswer,
    Question,
    RefusalAnswer,
    ScoreAnswer,
    ScoreProbability,
)
from functions.decide.texts import answer_values


def build_answer(
    question: Question, logprobs: Sequence[float], *, temperature: float = 1.0, prior: Sequence[float] | None = None
) -> Answer:
    """Return the answer to a question.

    `logprobs` are of yes and no for a predicate, else of each choice or level; `prior` are the same for an empty input
    and are subtracted. A question is refused where a value is NaN or infinite, or no answer has any probability.
    """
    if prior is not None:
        logprobs = [log if math.isinf(log) else log - before for log, before in zip(logprobs, prior, strict=True)]
    if any(math.isnan(log) or log == math.inf for log in logprobs) or all(math.isinf(log) for log in logprobs):
        return RefusalAnswer(name=question.name)
    return _from_probabilities(question, softmax(logprobs, temperature))


def _from_probabilities(question: Question, probabilities: Sequence[float]) -> Answer:
    """Return the answer with these probabilities; of equal ones the first is chosen."""
    if question.type == "predicate":
        return PredicateAnswer(name=question.name, probability=probabilities[0])
    best = max(range(len(probabilities)), key=probabilities.__getitem__)
    if question.type == "choice":
        values = answer_values(question)
        return ChoiceAnswer(
            name=question.name,
            choice=values[best],
            confidence=probabilities[best],
            probabilities=[
                ChoiceProbability(value=value, probability=probability)
                for value, probability in zip(values, probabilities, strict=True)
            ],
        )
    return ScoreAnswer(
        name=question.name,
        score=math.fsum(at * probability for at, probability in enumerate(probabilities)),
        confidence=probabilities[best],
        probabilities=[
            ScoreProbability(label=level.label, value=at, probability=probability)
            for at, (level, probability) in enumerate(zip(question.levels or (), probabilities, strict=True))
        ],
    )


def total_probability(logprobs: Sequence[float]) -> float:
    """Return the sum of probabilities, 0 where it is NaN; compared with the option `min_mass`."""
    total = math.exp(logsumexp(logprobs))
    return 0.0 if math.isnan(total) else total
