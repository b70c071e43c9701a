"""Decisions by a classifier, whatever engine runs it: questions whose answers are its labels, or, of an NLI model, any.

It knows the life of a request in a worker, and nothing of how logits are computed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from functions.decide.answers import answer, mass
from functions.decide.api import Answer, DecisionRequest, Decisions, Question, RefusalAnswer
from functions.decide.label_matching import Labels, hypotheses, inferred
from functions.decide.options import DecideOptions
from functions.decide.texts import written
from functions.decide.turns import turns
from functions.engines.batching import length_guard
from functions.engines.batching.chunked_tokenizer import ChunkedTokenizer
from functions.engines.batching.classifier import ClassifierModel
from functions.engines.batching.classifier_instance import ClassifierInstance
from functions.engines.batching.item import Item
from host.errors import InputTooLong, InvalidRequest, LoadFailed, NotFinite
from host.function import Load, Plan, Usage

_ALL = sys.maxsize
"""Texts are read to their end, so that one of too many tokens is told how many; `brevity` has bounded them."""


class ClassifierDecide(ClassifierInstance):
    """A classifier that decides."""

    def __init__(self, load: Load, model: ClassifierModel) -> None:
        """Read the labels; from now on texts that spell special tokens are words to the tokenizer."""
        super().__init__(load, model)
        self._options = load.task_options(DecideOptions)
        self._reader = ChunkedTokenizer(model.tokenizer)
        self._labels = Labels(model.labels, several=model.config.get("problem_type") == "multi_label_classification")
        model.tokenizer.literal()

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        if load.task_options(DecideOptions).prior:
            raise LoadFailed("options.prior is for chat models: a classifier has no prior", param="options.prior")
        return super().plan(load)

    async def answer(self, request: DecisionRequest) -> Decisions:
        """Return an answer to each question, a refusal where its answers are not the model's labels.

        Raises `InvalidRequest`, and `InputTooLong` for an input that the model does not take as a whole.
        """
        about = _text(request)
        length_guard.check(about, self.model.longest, "input")
        if self._labels.inference is None:
            return await self._labelled(about, request.questions)
        return await self._inferred(about, request.questions)

    def detail(self) -> dict[str, Any]:
        """Return whether any answers can be asked for, as of models of natural language inference."""
        return {"inference": self._labels.inference is not None}

    async def _single(self, about: str) -> Item:
        item = Item(ids=(await self.model.tokenizer.encode([about]))[0])
        self._check_room(item, "input", "the input has {} tokens")
        return item

    async def _pairs(self, about: str, questions: Sequence[Question]) -> list[list[Item]]:
        """Return the input with the hypotheses of each question."""
        for at, question in enumerate(questions):
            length_guard.check(written(question), self.model.longest, f"questions[{at}]")
        said = [hypotheses(question) for question in questions]
        texts = [hypothesis for some in said for hypothesis in some]
        premise, *found = await self._reader.read([about, *texts], _ALL)
        items = [self.model.tokenizer.pair.item(premise.ids, one.ids) for one in found]
        places = [at for at, some in enumerate(said) for _ in some]
        for item, at in zip(items, places, strict=True):
            self._check_room(item, "input", f"the input with `questions[{at}]` has {{}} tokens")
        pairs = iter(items)
        return [[next(pairs) for _ in some] for some in said]

    def _check_room(self, item: Item, param: str, words: str) -> None:
        if len(item.ids) > self.model.longest:
            raise InputTooLong(
                f"{words.format(len(item.ids))}, and the model takes {self.model.longest}: shorten it",
                param=param,
                extra={"n_prompt_tokens": len(item.ids), "n_ctx": self.model.longest},
            )

    async def _labelled(self, about: str, questions: Sequence[Question]) -> Decisions:
        item = await self._single(about)
        rows = await self._rows([item])
        answers = [self._by_label(question, rows[0]) if rows else _refused(question) for question in questions]
        return Decisions(answers=answers, usage=_usage([item]))

    def _by_label(self, question: Question, logits: Sequence[float]) -> Answer:
        places = self._labels.matching(question)
        if places is None:
            return _refused(question)
        logs = self._labels.logs(logits, places)
        if mass(logs) < self._options.min_mass:
            return _refused(question)
        return answer(question, logs, temperature=self._options.temperature)

    async def _inferred(self, about: str, questions: Sequence[Question]) -> Decisions:
        """Answer all questions at once, and each by itself where any of their numbers are not finite."""
        apart = await self._pairs(about, questions)
        items = [item for some in apart for item in some]
        found = await self._rows(items)
        if found is None:
            parts = [await self._rows(some) for some in apart]
        else:
            rows = iter(found)
            parts = [[next(rows) for _ in some] for some in apart]
        answers = [self._by_inference(question, part) for question, part in zip(questions, parts, strict=True)]
        return Decisions(answers=answers, usage=_usage(items))

    def _by_inference(self, question: Question, rows: Sequence[Sequence[float]] | None) -> Answer:
        assert self._labels.inference is not None
        if rows is None:
            return _refused(question)
        logs = inferred(question, rows, self._labels.inference)
        return answer(question, logs, temperature=self._options.temperature)

    async def _rows(self, items: Sequence[Item]) -> list[list[float]] | None:
        """Return the items' logits; None where they are not finite."""
        try:
            return [row.tolist() for row in await self.model.logits(items)]
        except NotFinite:
            return None


def _refused(question: Question) -> RefusalAnswer:
    return RefusalAnswer(name=question.name)


def _usage(items: Sequence[Item]) -> Usage:
    return Usage(prompt_tokens=sum(len(item.ids) for item in items))


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
