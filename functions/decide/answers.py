"""Answers from the log-probabilities of what may be answered: predicate, choice, score, or a refusal.

It knows questions and numbers, and nothing of models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
from functions.decide.spellings import shares, total
from functions.decide.texts import values


def answer(
    question: Question, logs: Sequence[float], *, temperature: float = 1.0, prior: Sequence[float] | None = None
) -> Answer:
    """Return the answer to a question.

    `logs` are of yes and no for a predicate, else of each choice or level; `prior` are the same without the input.
    A question is refused where they are no numbers, or nothing that may be answered has any probability.
    """
    if prior is not None:
        logs = [log if math.isinf(log) else log - before for log, before in zip(logs, prior, strict=True)]
    if any(math.isnan(log) or log == math.inf for log in logs) or all(math.isinf(log) for log in logs):
        return RefusalAnswer(name=question.name)
    return answered(question, shares(logs, temperature))


def answered(question: Question, probabilities: Sequence[float]) -> Answer:
    """Return the answer to a question from the probabilities of what may be answered; of equals the first wins."""
    if question.type == "predicate":
        return PredicateAnswer(name=question.name, probability=probabilities[0])
    best = max(range(len(probabilities)), key=probabilities.__getitem__)
    if question.type == "choice":
        return ChoiceAnswer(
            name=question.name,
            choice=values(question)[best],
            confidence=probabilities[best],
            probabilities=[
                ChoiceProbability(value=value, probability=probability)
                for value, probability in zip(values(question), probabilities, strict=True)
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


def mass(logs: Sequence[float]) -> float:
    """Return the probability that the model says any of what may be answered; 0 where it gives no number."""
    found = math.exp(total(logs))
    return 0.0 if math.isnan(found) else found
