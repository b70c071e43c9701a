"""Decisions by a classifier, whatever engine runs it: questions whose answers are its labels, or, of an NLI model, any.

It knows the life of a request in a worker, and nothing of how logits are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, Self

import msgspec

from functions.decide import answering
from functions.decide.api import Answer, DecisionRequest, Decisions, Question, RefusalAnswer
from functions.decide.checks import check
from functions.decide.heads import Labels, hypotheses, inferred
from functions.decide.options import DecideOptions
from functions.decide.turns import turns
from functions.engines.batching.headed import Head, HeadedModel
from functions.engines.batching.item import Item
from host.errors import InputTooLong, InvalidRequest
from host.function import Facts, Instance, Load, Plan, Progress, Usage

_CAPACITY = 256
"""Requests side by side; the batcher merges them."""


class Engine(Protocol):
    """The class of an engine's models with a head."""

    @staticmethod
    def plan(load: Load) -> Plan: ...  # noqa: D102
    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress, head: Head) -> HeadedModel: ...  # noqa: D102


class ClassifierDecide(Instance):
    """A classifier that decides."""

    engine: ClassVar[type[Engine]]

    def __init__(self, model: HeadedModel, options: DecideOptions) -> None:
        self._model = model
        self._options = options
        self._labels = Labels(model.labels, several=model.config.get("problem_type") == "multi_label_classification")
        model.tokenizer.literal()

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        return cls.engine.plan(load)

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer, weights and head; raises `LoadFailed`, and `OutOfMemory`."""
        options = msgspec.msgpack.decode(load.function_options, type=DecideOptions)
        return cls(cls.engine.load(load, plan, progress, "sequence"), options)

    async def answer(self, request: DecisionRequest) -> Decisions:
        """Return an answer to each question, a refusal where its answers are not the model's labels.

        Raises `InvalidRequest`, and `InputTooLong` for an input that the model does not take as a whole.
        """
        check(request)
        about = _text(request)
        if self._labels.inference is not None:
            items, counts = await self._pairs(about, request.questions)
        else:
            items, counts = [await self._single(about)], []
        rows = [row.tolist() for row in await self._model.logits(items)]
        answers = (
            self._inferred(request.questions, rows, counts)
            if self._labels.inference is not None
            else [self._labelled(question, rows[0]) for question in request.questions]
        )
        return Decisions(answers=answers, usage=Usage(prompt_tokens=sum(len(item.ids) for item in items)))

    def facts(self) -> Facts:
        """Return what was chosen."""
        detail = self._model.detail() | {"inference": self._labels.inference is not None}
        return Facts(capacity=_CAPACITY, context=self._model.longest, detail=detail)

    def close(self) -> None:
        """End the threads."""
        self._model.close()

    async def _single(self, about: str) -> Item:
        item = Item(ids=(await self._model.tokenizer.encode([about]))[0])
        self._check_room(item, "input", "the input has {} tokens")
        return item

    async def _pairs(self, about: str, questions: Sequence[Question]) -> tuple[list[Item], list[int]]:
        """Return the input with every hypothesis, and how many each question has."""
        said = [hypotheses(question) for question in questions]
        texts = [hypothesis for some in said for hypothesis in some]
        premise, *found = await self._model.tokenizer.pieces([about, *texts])
        items = [self._model.tokenizer.pair.item(premise.ids, one.ids) for one in found]
        places = [at for at, some in enumerate(said) for _ in some]
        for item, at in zip(items, places, strict=True):
            self._check_room(item, "input", f"the input with `questions[{at}]` has {{}} tokens")
        return items, [len(some) for some in said]

    def _check_room(self, item: Item, param: str, words: str) -> None:
        if len(item.ids) > self._model.longest:
            raise InputTooLong(
                f"{words.format(len(item.ids))}, and the model takes {self._model.longest}: shorten it",
                param=param,
                extra={"n_prompt_tokens": len(item.ids), "n_ctx": self._model.longest},
            )

    def _labelled(self, question: Question, logits: Sequence[float]) -> Answer:
        places = self._labels.matching(question)
        if places is None:
            return RefusalAnswer(name=question.name)
        logs = self._labels.logs(logits, places)
        if answering.mass(logs) < self._options.min_mass:
            return RefusalAnswer(name=question.name)
        return answering.answer(question, logs, temperature=self._options.temperature)

    def _inferred(
        self, questions: Sequence[Question], rows: Sequence[Sequence[float]], counts: Sequence[int]
    ) -> list[Answer]:
        assert self._labels.inference is not None
        answers: list[Answer] = []
        start = 0
        for question, count in zip(questions, counts, strict=True):
            logs = inferred(question, rows[start : start + count], self._labels.inference)
            answers.append(answering.answer(question, logs, temperature=self._options.temperature))
            start += count
        return answers


def _text(request: DecisionRequest) -> str:
    """Return the input as one text: a conversation names who speaks."""
    if isinstance(request.input, str):
        found = request.input
    else:
        said = [turn for turn in turns(request, "") if turn.text]
        found = said[0].text if len(said) == 1 else "\n".join(f"{turn.role}: {turn.text}" for turn in said)
    if not found.strip():
        raise InvalidRequest("`input` has no text", param="input")
    return found
