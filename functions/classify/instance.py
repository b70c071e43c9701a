"""A loaded classifier that answers requests, whatever engine runs it: labels with scores, and OpenAI's moderations."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from functions.classify import option_checks
from functions.classify.api import Classified, ClassifyRequest, Moderated, ModerationRequest
from functions.classify.categories import nearest
from functions.classify.inputs import Input, Pair, field_of, inputs_of, labels_of, moderated_texts
from functions.classify.moderation import ModerationJudge
from functions.classify.options import ClassifyOptions, Windows
from functions.classify.predictor import Predictor
from functions.classify.read_options import ReadOptions
from functions.classify.scores import Applied, activation
from functions.classify.selection import Predictions, classifications, thresholds
from functions.engines.batching import length_guard
from functions.engines.batching.classifier import ClassifierModel
from functions.engines.batching.classifier_instance import ClassifierInstance
from host.checks import item_params
from host.errors import InvalidRequest, UnsupportedParameter
from host.function import Load, Usage

_CELLS_MAX = 1 << 18
"""Scores in one answer: texts times labels."""
_MODERATION_HINT = "shorten it, or set another options.windows in the manifest"
_BREATH = 64
"""Texts answered before other work of the event loop gets its turn."""


class Classifier(ClassifierInstance):
    """A classifier, or a model of natural language inference."""

    def __init__(self, load: Load, model: ClassifierModel) -> None:
        """Raises `LoadFailed` for options that do not suit the model."""
        super().__init__(load, model)
        self._options = options = load.task_options(ClassifyOptions)
        self._activation = activation(options.activation, model.config.get("problem_type"), len(model.labels))
        self._predictor = Predictor(model, options.entailment)
        self._said = None if options.threshold == "auto" else options.threshold
        inference = self._predictor.entailment is not None
        if options.moderation or inference or model.config.get("is_encoder_decoder"):
            # A text must not end itself and go on as the hypothesis, nor hide behind tokens that mean its end. Models
            # like BART read the last of an input's closing tokens, and take no batch with another number of them.
            model.tokenizer.literal()
        option_checks.check(options, self._predictor, self._activation)
        self._moderation = ModerationJudge(options.moderation, self._said) if options.moderation else None

    async def answer(self, request: ClassifyRequest | ModerationRequest) -> Classified | Moderated:
        """Return what each text is. Raises `InvalidRequest`, and `InputTooLong` for what may not be cut."""
        if isinstance(request, ModerationRequest):
            return await self._moderate(request)
        return await self._classify(request)

    def detail(self) -> dict[str, Any]:
        """Return what was chosen for the labels."""
        return {
            "activation": self._activation,
            "zero_shot": self._predictor.entailment is not None,
            "moderation": sorted(self._options.moderation),
        }

    async def _classify(self, request: ClassifyRequest) -> Classified:
        name = field_of(request)
        given = inputs_of(getattr(request, name))
        reading = self._reading(request, name)
        wanted = labels_of(request)
        self._check_brief(wanted, request.hypothesis_template)
        plain = [one for one in given if isinstance(one, str)]
        if self._predictor.entailment is None or not plain:
            activation_ = self._own(request, given, name)
            _check_named(request.threshold, self.model.labels)
            found = await self._predictor.trained(given, reading, activation_)
            return await self._classified(request, found, activation_)
        chosen = self._chosen(request, wanted, given, name)
        _check_named(request.threshold, chosen)
        template = request.hypothesis_template or self._options.hypothesis_template
        sent = (field for field in ("labels", "hypothesis_template") if getattr(request, field) is not None)
        multi = self._options.multi_label if request.multi_label is None else request.multi_label
        found = await self._predictor.chosen(
            plain, chosen, template, reading, multi=multi, blamed=next(sent, reading.limited)
        )
        return await self._classified(request, found, "softmax")

    async def _classified(self, request: ClassifyRequest, found: Predictions, activation_: Applied) -> Classified:
        said = self._said if request.threshold is None else request.threshold
        least = thresholds(None if activation_ == "none" else said, found.labels, independent=found.independent)
        top_k = self._options.top_k if request.top_k is None else request.top_k
        data = []
        for item in classifications(found, least, top_k, raw=bool(request.raw_scores)):
            data.append(item)
            if len(data) % _BREATH == 0:
                await asyncio.sleep(0)
        return Classified(model=self.name, data=data, usage=Usage(prompt_tokens=found.tokens))

    async def _moderate(self, request: ModerationRequest) -> Moderated:
        given, parts = moderated_texts(request)
        if self._moderation is None:
            raise InvalidRequest(
                f"`{self.name}` does not moderate: its manifest has no options.moderation, a table of its labels and "
                "the categories they stand for, such as {toxic: harassment}",
                param="model",
            )
        how: Windows = "max" if self._options.windows == "auto" else self._options.windows
        reading = ReadOptions(
            name="input",
            places=item_params("input", request.input),
            how=how,
            limit=self.model.longest,
            limited="input",
            overlap=self._options.overlap,
            hint=_MODERATION_HINT,
        )
        if self._options.labels:
            template = self._options.hypothesis_template
            found = await self._predictor.chosen(
                given, self._options.labels, template, reading, multi=True, blamed=reading.limited
            )
        else:
            found = await self._predictor.trained(given, reading, self._activation)
        results = self._moderation.judge(found, one=parts)
        return Moderated(model=self.name, results=results, usage=Usage(prompt_tokens=found.tokens))

    def _reading(self, request: ClassifyRequest, name: str) -> ReadOptions:
        limit = self.model.longest if request.max_length is None else request.max_length
        if limit > self.model.longest:
            raise InvalidRequest(
                f"max_length is {limit}, the model takes {self.model.longest} tokens", param="max_length"
            )
        how: Windows = "mean" if self._options.windows == "auto" else self._options.windows
        if request.windows is not None:
            how = msgspec.convert(request.windows, Windows)
        elif request.truncate:
            how = "first"
        elif request.truncate is False and how == "first":
            how = "off"
        return ReadOptions(
            name=name,
            places=item_params(name, getattr(request, name)),
            how=how,
            limit=limit,
            limited=name if request.max_length is None else "max_length",
            overlap=self._options.overlap,
        )

    def _check_brief(self, wanted: list[str] | None, template: str | None) -> None:
        length_guard.check(template or "", self.model.longest, "hypothesis_template")
        for at, label in enumerate(wanted or ()):
            length_guard.check(label, self.model.longest, f"labels[{at}]")

    def _own(self, request: ClassifyRequest, given: Sequence[Input], name: str) -> Applied:
        """Return what makes scores of the model's own labels; raises `InvalidRequest` for what does not go with them.

        A model of natural language inference gets here with pairs only.
        """
        for field in ("labels", "multi_label", "hypothesis_template"):
            if getattr(request, field) is not None:
                raise InvalidRequest(self._why_not(field), param=field)
        count = len(given)
        if count * len(self.model.labels) > _CELLS_MAX:
            most = _CELLS_MAX // len(self.model.labels)
            raise InvalidRequest(
                f"{count} texts are too many for a model of {len(self.model.labels)} labels: send {most} at once",
                param=name,
            )
        asked = request.function_to_apply
        chosen = self._activation if asked is None else msgspec.convert(asked, Applied)
        if request.threshold is not None and chosen == "none":
            raise UnsupportedParameter(
                "threshold is for probabilities, and these scores are the model's own numbers: leave threshold out",
                param="threshold",
            )
        return chosen

    def _why_not(self, field: str) -> str:
        few = option_checks.few(self.model.labels)
        if self._predictor.entailment is not None:
            return f"{field} is for texts, and these are pairs, which get the model's own labels: {few}"
        return (
            f"{field} is for models of natural language inference, whose labels include entailment; "
            f"this one has labels of its own: {few}"
        )

    def _chosen(
        self, request: ClassifyRequest, wanted: list[str] | None, given: Sequence[Input], name: str
    ) -> list[str]:
        """Return the labels that a model of natural language inference is to choose from; raises `InvalidRequest`."""
        pair = next((at for at, one in enumerate(given) if isinstance(one, Pair)), None)
        if pair is not None:
            place = f"{name}[{pair}]"
            raise InvalidRequest(
                f"{place} is a pair and others are texts: this model has labels of its own for pairs and takes labels "
                "for texts, so send them apart",
                param=place,
            )
        if request.function_to_apply is not None:
            raise UnsupportedParameter(
                "function_to_apply is for a model's own labels, and zero-shot scores are probabilities of entailment: "
                "leave function_to_apply out",
                param="function_to_apply",
            )
        chosen = wanted or self._options.labels
        if not chosen:
            raise InvalidRequest(
                "labels is missing: this is a model of natural language inference, which scores any labels for a "
                "text; send some, or set options.labels in the manifest; pairs of texts need none",
                param="labels",
            )
        return chosen


def _check_named(given: float | dict[str, float] | None, labels_: Sequence[str]) -> None:
    """Raise `InvalidRequest` for a threshold of a label that is none of these."""
    for label in given if isinstance(given, dict) else ():
        if label not in labels_:
            raise InvalidRequest(
                f"threshold names `{label}`, which is no label here; {nearest(label, labels_)}",
                param=f"threshold.{label}",
            )
