"""What the shipped manifest is worth: on the texts that its prompts were chosen on, and on texts held out from that.

The second are what users will see. Bounds are loose: probabilities of a model in 4 bits move by hundredths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import heldout
import labelled
import loads
import msgspec
import numpy as np
import pytest
from decisions import request_of

from functions.decide.llama import LlamaDecide
from host.manifest import load as read_manifest

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
MANIFEST = Path(__file__).parents[3] / "manifests" / "smollm2-decide.yaml"


def scale(instructions: str, labels: Sequence[str]) -> dict[str, Any]:
    return {"type": "score", "instructions": instructions, "levels": [{"label": label} for label in labels]}


class Worth:
    """Decisions of one model, and how often they are right."""

    def __init__(self, model: LlamaDecide) -> None:
        self._model = model
        self._true: list[float] = []
        self._false: list[float] = []
        self._above: list[bool] = []

    async def ask(self, text: str, true: Sequence[str], false: Sequence[str], more: list[Any]) -> list[dict[str, Any]]:
        """Ask whether statements are true, keep what was answered, and return the answers to the other questions."""
        found = msgspec.to_builtins((await self._model.answer(request_of(text, [*true, *false, *more]))).answers)
        probabilities = [answer["probability"] for answer in found[: len(true) + len(false)]]
        right, wrong = probabilities[: len(true)], probabilities[len(true) :]
        self._true += right
        self._false += wrong
        self._above += [one > other for one in right for other in wrong]
        return found[len(probabilities) :]

    def statements(self) -> dict[str, float]:
        """Return the share of statements that were judged right, and of pairs of one text that were ranked right."""
        right = [one > 0.5 for one in self._true] + [one < 0.5 for one in self._false]
        return {"statements": float(np.mean(right)), "pairs": float(np.mean(self._above))}


def correlation(pairs: Sequence[tuple[float, float]]) -> float:
    return float(np.corrcoef(np.array(pairs).T)[0, 1])


@pytest.fixture(scope="module")
def options() -> dict[str, Any]:
    manifest, _ = read_manifest(MANIFEST)
    assert manifest.task == "decide"
    return dict(manifest.options)


@pytest.fixture(scope="module")
def open_worth(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    opened: list[LlamaDecide] = []

    def open_one(options: dict[str, Any]) -> Worth:
        load = loads.given("decide", smollm2, options, engine="llama", context=512, device="cpu")
        opened.append(LlamaDecide.load(load, LlamaDecide.plan(load), loads.ignore))
        return Worth(opened[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield open_one
        for model in opened:
            model.close()


async def test_texts_that_the_prompts_were_chosen_on(open_worth: Any, options: dict[str, Any]) -> None:
    """Chance would be half, a third and a fifth."""
    worth = open_worth(options)
    sentiments, topics, scores = [], [], []
    more = [
        ("What is the sentiment of the text?", list(labelled.SENTIMENTS)),
        ("What is the text about?", list(labelled.TOPICS)),
        scale("How satisfied is the writer?", labelled.LEVELS),
    ]
    for text in labelled.TEXTS:
        sentiment, topic, score = await worth.ask(text.text, text.true, text.false, more)
        sentiments.append(sentiment["choice"] == text.sentiment)
        topics.append(topic["choice"] == text.topic)
        if text.level is not None:
            scores.append((text.level, score["score"]))
    found = worth.statements() | {"sentiments": np.mean(sentiments), "topics": np.mean(topics)}
    found["scores"] = correlation(scores)
    assert found["statements"] > 0.6 and found["topics"] > 0.6 and found["sentiments"] > 0.4, found
    assert found["scores"] > 0.6, found


SUBJECT = ("What is the subject of the text?", list(heldout.SUBJECTS))


async def held_out(worth: Worth) -> dict[str, float]:
    """Return what is right of the held-out texts; chance would be half, a twelfth, a fifth, and a correlation of 0."""
    subjects, kinds, moods = [], [], []
    more = [
        SUBJECT,
        ("What kind of message is it?", list(heldout.KINDS)),
        scale("How pleased is the writer?", heldout.PLEASURE),
    ]
    for text in heldout.TEXTS:
        subject, kind, mood = await worth.ask(text.text, text.true, text.false, more)
        subjects.append(subject["choice"] == text.subject)
        kinds.append(kind["choice"] == text.kind)
        if text.kind in heldout.PLEASED:
            moods.append((heldout.PLEASED[text.kind], mood["score"]))
    found = worth.statements() | {"subjects": float(np.mean(subjects)), "kinds": float(np.mean(kinds))}
    return found | {"mood": correlation(moods)}


async def subjects(worth: Worth) -> float:
    """Return the share of subjects that are right."""
    found = [(await worth.ask(text.text, (), (), [SUBJECT]))[0]["choice"] == text.subject for text in heldout.TEXTS]
    return float(np.mean(found))


async def test_texts_held_out(open_worth: Any, options: dict[str, Any]) -> None:
    """Measured: 0.63 of statements, 0.71 of pairs, 0.42 of kinds, 0.83 of subjects and 0.58 without the prior.

    How pleased a writer is correlates by 0.68 with what is true.
    """
    found = await held_out(open_worth(options | {"prior": True}))
    without = await subjects(open_worth(options | {"prior": False}))
    assert found["statements"] > 0.55 and found["pairs"] > 0.6 and found["mood"] > 0.4, found
    assert found["subjects"] > 0.65 and found["kinds"] > 0.25, found
    assert found["subjects"] > without + 0.1, (found, without)
