"""Decisions by a chat model on llama.cpp: scores each question's answers as continuations of one shared prefix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from functions.decide.answer_priors import Priors
from functions.decide.answers import build_answer, total_probability
from functions.decide.api import Answer, DecisionRequest, Decisions, Question, RefusalAnswer
from functions.decide.options import DecideOptions
from functions.decide.question_tokens import QuestionTokenizer
from functions.decide.tokenizer_pool import TokenizerPool
from functions.engines.chat_template import ChatTemplate, TemplateError
from functions.engines.llama.scoring.model import ScoringModel
from host.errors import LoadFailed
from host.function import Instance, InstanceInfo, Load, Plan, Progress, Usage

_CAPACITY = 64
"""Concurrent requests; the scorer schedules their branches."""


class LlamaDecide(Instance):
    """A chat model of a GGUF file."""

    def __init__(self, plan: Plan, model: ScoringModel, options: DecideOptions, threads: int) -> None:
        self._plan = plan
        self._model = model
        self._options = options
        self._tokenizer = QuestionTokenizer(
            _template(model), model.vocabulary, options, longest=model.longest, system=model.options.system
        )
        self._pool = TokenizerPool(threads)
        self._priors = Priors(model, self._tokenizer, self._pool) if options.prior else None

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Estimate the memory; raises `LoadFailed` and `OutOfMemory`."""
        return ScoringModel.plan(load)

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load the weights; raises `LoadFailed`, also for a file without a chat template, and `OutOfMemory`."""
        model = ScoringModel.load(load, plan, progress)
        try:
            options = load.task_options(DecideOptions)
            return cls(plan, model, options, load.threads)
        except BaseException:
            model.close()
            raise

    async def answer(self, request: DecisionRequest) -> Decisions:
        """Return an answer to each question.

        Raises `InvalidRequest`, and `ContextLengthExceeded` where the input leaves no room for a question.
        """
        prefix, questions = await self._pool.run(lambda check: self._tokenizer.tokenize(request, check))
        scores = await self._model.score(prefix, [question.branch for question in questions])
        priors = [None] * len(questions) if self._priors is None else await self._priors.get(questions)
        answers = [
            self._answer(question.question, question.spellings.answer_logprobs(logs.tolist()), prior)
            for question, logs, prior in zip(questions, scores.logprobs, priors, strict=True)
        ]
        return Decisions(
            answers=answers,
            usage=Usage(prompt_tokens=scores.tokens, cached_tokens=scores.cached),
            cache_write_tokens=len(prefix) - scores.cached if self._model.reuses else 0,
        )

    def info(self) -> InstanceInfo:
        """Return the capacity, the context in tokens, and the model's description."""
        detail = {
            "description": self._model.model.description(),
            "shares_prefixes": self._model.reuses,
            "device": self._plan.device,
        }
        return InstanceInfo(capacity=_CAPACITY, context=self._model.longest, detail=detail)

    def close(self) -> None:
        """End the threads and free the model."""
        self._pool.close()
        self._model.close()

    def _answer(self, question: Question, logprobs: Sequence[float], prior: Sequence[float] | None) -> Answer:
        if total_probability(logprobs) < self._options.min_mass:
            return RefusalAnswer(name=question.name)
        return build_answer(question, logprobs, temperature=self._options.temperature, prior=prior)


def _template(model: ScoringModel) -> ChatTemplate:
    override = model.options.chat_template
    source = override or model.model.chat_template()
    if source is None:
        raise LoadFailed("this model's file has no chat template: set `options.chat_template` in its manifest")
    vocabulary = model.vocabulary
    try:
        return ChatTemplate(source, bos=vocabulary.spelled(vocabulary.bos), eos=vocabulary.spelled(vocabulary.eos))
    except TemplateError as error:
        where = "options.chat_template" if override else "the chat template in this model's file"
        raise LoadFailed(f"{where} is not valid Jinja: {error}") from None
