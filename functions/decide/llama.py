"""Decisions on llama.cpp: the input is a prefix, questions are branches behind it, answers what may follow these.

It knows the life of a request in a worker, and nothing of how probabilities are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from functions.decide.answers import answer, mass
from functions.decide.api import Answer, DecisionRequest, Decisions, RefusalAnswer
from functions.decide.options import DecideOptions
from functions.decide.priors import Priors
from functions.decide.question_tokens import Ask, Asker
from functions.decide.tokenizer_pool import Threads
from functions.engines.chat_template import ChatTemplate, TemplateError
from functions.engines.llama.scoring.model import ScoringModel
from host.errors import LoadFailed
from host.function import Instance, InstanceInfo, Load, Plan, Progress, Usage

_CAPACITY = 64
"""Requests side by side: they take turns."""


class LlamaDecide(Instance):
    """A chat model in a GGUF file that decides."""

    def __init__(self, plan: Plan, model: ScoringModel, options: DecideOptions, threads: int) -> None:
        self._plan = plan
        self._model = model
        self._options = options
        self._asker = Asker(
            _template(model), model.vocabulary, options, longest=model.longest, system=model.options.system
        )
        self._threads = Threads(threads)
        self._priors = Priors(model, self._asker, self._threads) if options.prior else None

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Weigh the file; raises `LoadFailed` and `OutOfMemory`."""
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
        prefix, asks = await self._threads.run(lambda check: self._asker.request(request, check))
        scores = await self._model.score(prefix, [ask.branch for ask in asks])
        priors = [None] * len(asks) if self._priors is None else await self._priors.of(asks)
        answers = [
            self._answer(ask, ask.events.logs(logs.tolist()), prior)
            for ask, logs, prior in zip(asks, scores.logprobs, priors, strict=True)
        ]
        return Decisions(
            answers=answers,
            usage=Usage(prompt_tokens=scores.tokens, cached_tokens=scores.cached),
            cache_write_tokens=len(prefix) - scores.cached if self._model.reuses else 0,
        )

    def info(self) -> InstanceInfo:
        """Return what is served."""
        detail = {
            "description": self._model.model.description(),
            "shares_prefixes": self._model.reuses,
            "device": self._plan.device,
        }
        return InstanceInfo(capacity=_CAPACITY, context=self._model.longest, detail=detail)

    def close(self) -> None:
        """End the threads and free the model."""
        self._threads.close()
        self._model.close()

    def _answer(self, ask: Ask, logs: Sequence[float], prior: Sequence[float] | None) -> Answer:
        if mass(logs) < self._options.min_mass:
            return RefusalAnswer(name=ask.question.name)
        return answer(ask.question, logs, temperature=self._options.temperature, prior=prior)


def _template(model: ScoringModel) -> ChatTemplate:
    override = model.options.chat_template
    source = override or model.model.chat_template()
    if source is None:
        raise LoadFailed("this model's file has no chat template: set `options.chat_template` in its manifest")
    words = model.vocabulary
    try:
        return ChatTemplate(source, bos=words.spelled(words.bos), eos=words.spelled(words.eos))
    except TemplateError as error:
        where = "options.chat_template" if override else "the chat template in this model's file"
        raise LoadFailed(f"{where} is not valid Jinja: {error}") from None
