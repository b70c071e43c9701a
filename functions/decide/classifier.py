"""Decisions by a classifier, on any engine: answers that are its labels, or any answers with an NLI model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from functions.decide.answers import build_answer, total_probability
from functions.decide.api import Answer, DecisionRequest, Decisions, Question, RefusalAnswer
from functions.decide.label_matching import LabelMatcher, hypotheses, hypothesis_logits
from functions.decide.messages import to_messages
from functions.decide.options import DecideOptions
from functions.decide.texts import question_text
from functions.engines.batching import length_guard
from functions.engines.batching.chunked_tokenizer import ChunkedTokenizer
from functions.engines.batching.classifier import ClassifierModel
from functions.engines.batching.classifier_instance import ClassifierInstance
from functions.engines.batching.item import Item
from host.errors import InputTooLong, InvalidRequest, LoadFailed, NotFinite
from host.function import Load, Plan, Usage

_ALL = sys.maxsize
"""Texts are tokenised to their end, so that errors have the exact count; `length_guard` has bounded them."""


class ClassifierDecide(ClassifierInstance):
    """A sequence classifier, or an NLI model."""

    def __init__(self, load: Load, model: ClassifierModel) -> None:
        """Parse the labels, and make the tokenizer read special tokens in texts as plain text."""
        super().__init__(load, model)
        self._options = load.task_options(DecideOptions)
        self._tokenizer = ChunkedTokenizer(model.tokenizer)
        multi_label = model.config.get("problem_type") == "multi_label_classification"
        self._labels = LabelMatcher(model.labels, multi_label=multi_label)
        model.tokenizer.literal()

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        if load.task_options(DecideOptions).prior:
            raise LoadFailed("options.prior is for chat models: a classifier has no prior", param="options.prior")
        return super().plan(load)

    async def answer(self, request: DecisionRequest) -> Decisions:
        """Return an answer to each question, a refusal where its answers are not the model's labels.

        Raises `InvalidRequest`, and `InputTooLong` for an input that is longer than the model takes.
        """
        text = _input_text(request)
        length_guard.check(text, self.model.longest, "input")
        if self._labels.nli is None:
            return await self._answer_by_labels(text, request.questions)
        return await self._answer_by_nli(text, request.questions)

    def detail(self) -> dict[str, Any]:
        """Return whether the model is one of natural language inference (NLI), which takes any answers."""
        return {"inference": self._labels.nli is not None}

    async def _item(self, text: str) -> Item:
        item = Item(ids=(await self.model.tokenizer.encode([text]))[0])
        self._check_length(item, "the input has {} tokens")
        return item

    async def _pairs(self, text: str, questions: Sequence[Question]) -> list[list[Item]]:
        """Return the input paired with the hypotheses of each question."""
        for at, question in enumerate(questions):
            length_guard.check(question_text(question), self.model.longest, f"questions[{at}]")
        grouped = [hypotheses(question) for question in questions]
        flat = [hypothesis for group in grouped for hypothesis in group]
        premise, *encoded = await self._tokenizer.read([text, *flat], _ALL)
        items = [self.model.tokenizer.pair.item(premise.ids, one.ids) for one in encoded]
        owners = [at for at, group in enumerate(grouped) for _ in group]
        for item, at in zip(items, owners, strict=True):
            self._check_length(item, f"the input with `questions[{at}]` has {{}} tokens")
        pairs = iter(items)
        return [[next(pairs) for _ in group] for group in grouped]

    def _check_length(self, item: Item, message: str) -> None:
        """Raise `InputTooLong`; `message` has a placeholder for the number of tokens."""
        if len(item.ids) > self.model.longest:
            raise InputTooLong(
                f"{message.format(len(item.ids))}, and the model takes {self.model.longest}: shorten it",
                param="input",
                extra={"n_prompt_tokens": len(item.ids), "n_ctx": self.model.longest},
            )

    async def _answer_by_labels(self, text: str, questions: Sequence[Question]) -> Decisions:
        item = await self._item(text)
        rows = await self._logits([item])
        answers = [self._label_answer(question, rows[0]) if rows else _refusal(question) for question in questions]
        return Decisions(answers=answers, usage=_usage([item]))

    def _label_answer(self, question: Question, logits: Sequence[float]) -> Answer:
        indexes = self._labels.match(question)
        if indexes is None:
            return _refusal(question)
        logprobs = self._labels.logprobs(logits, indexes)
        if total_probability(logprobs) < self._options.min_mass:
            return _refusal(question)
        return build_answer(question, logprobs, temperature=self._options.temperature)

    async def _answer_by_nli(self, text: str, questions: Sequence[Question]) -> Decisions:
        """Compute all questions in one call, and each by itself where any logits are not finite."""
        grouped = await self._pairs(text, questions)
        items = [item for group in grouped for item in group]
        logits = await self._logits(items)
        if logits is None:
            parts = [await self._logits(group) for group in grouped]
        else:
            rows = iter(logits)
            parts = [[next(rows) for _ in group] for group in grouped]
        answers = [self._nli_answer(question, part) for question, part in zip(questions, parts, strict=True)]
        return Decisions(answers=answers, usage=_usage(items))

    def _nli_answer(self, question: Question, rows: Sequence[Sequence[float]] | None) -> Answer:
        assert self._labels.nli is not None
        if rows is None:
            return _refusal(question)
        logits = hypothesis_logits(question, rows, self._labels.nli)
        return build_answer(question, logits, temperature=self._options.temperature)

    async def _logits(self, items: Sequence[Item]) -> list[list[float]] | None:
        """Return the items' logits; None where any are not finite."""
        try:
            return [row.tolist() for row in await self.model.logits(items)]
        except NotFinite:
            return None


def _refusal(question: Question) -> RefusalAnswer:
    return RefusalAnswer(name=question.name)


def _usage(items: Sequence[Item]) -> Usage:
    return Usage(prompt_tokens=sum(len(item.ids) for item in items))


def _input_text(request: DecisionRequest) -> str:
    """Return the input as one text; in a conversation each message begins with its role."""
    if isinstance(request.input, str):
        text = request.input
    else:
        messages = [message for message in to_messages(request, "") if message.text]
        lines = (f"{message.role}: {message.text}" for message in messages)
        text = messages[0].text if len(messages) == 1 else "\n".join(lines)
    if not text.strip():
        raise InvalidRequest("`input` has no text", param="input")
    return text
