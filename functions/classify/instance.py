"""The loaded model of the classify function, on any engine: answers classify and moderation requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from functions.classify import option_checks
from functions.classify.api import ClassifyAnswer, ClassifyRequest, ModerationAnswer, ModerationRequest
from functions.classify.inputs import Input, Pair, input_field, moderation_texts, parse_inputs, parse_labels
from functions.classify.moderation import ModerationMapper
from functions.classify.openai_categories import nearest
from functions.classify.options import ClassifyOptions, Windows
from functions.classify.predictor import Predictor
from functions.classify.read_options import ReadOptions
from functions.classify.scores import ActivationFunction, resolve_activation
from functions.classify.top_labels import Predictions, classifications, thresholds
from functions.engines.batching import length_guard
from functions.engines.batching.classifier import ClassifierModel
from functions.engines.batching.classifier_instance import ClassifierInstance
from host.errors import InvalidRequest, UnsupportedParameter
from host.function import Load, Usage
from host.request_checks import item_params

_SCORES_MAX = 1 << 18
"""Scores in one answer: texts times labels."""
_MODERATION_HINT = "shorten it, or set another options.windows in the manifest"
_YIELD_EVERY = 64
"""Texts of an answer written before the event loop runs other work."""


class ClassifyInstance(ClassifierInstance):
    """A sequence classifier, or a model of natural language inference (NLI)."""

    def __init__(self, load: Load, model: ClassifierModel) -> None:
        """Raises `LoadFailed` for options that do not suit the model."""
        super().__init__(load, model)
        self._options = options = load.task_options(ClassifyOptions)
        self._activation = resolve_activation(options.activation, model.config.get("problem_type"), len(model.labels))
        self._predictor = Predictor(model, options.entailment)
        self._threshold = None if options.threshold == "auto" else options.threshold
        is_nli = self._predictor.nli_labels is not None
        if options.moderation or is_nli or model.config.get("is_encoder_decoder"):
            # A text must not end itself and go on as the hypothesis, nor hide behind tokens that mean its end. Models
            # like BART read the last of an input's closing tokens, and take no batch with another number of them.
            model.tokenizer.literal()
        option_checks.check(options, self._predictor, self._activation)
        self._moderation = ModerationMapper(options.moderation, self._threshold) if options.moderation else None

    async def answer(self, request: ClassifyRequest | ModerationRequest) -> ClassifyAnswer | ModerationAnswer:
        """Classify or moderate each text. Raises `InvalidRequest`, and `InputTooLong` for what may not be cut."""
        if isinstance(request, ModerationRequest):
            return await self._moderate(request)
        return await self._classify(request)

    def detail(self) -> dict[str, Any]:
        """Return the activation, whether zero-shot labels are served, and the labels that map to moderations."""
        return {
            "activation": self._activation,
            "zero_shot": self._predictor.nli_labels is not None,
            "moderation": sorted(self._options.moderation),
        }

    async def _classify(self, request: ClassifyRequest) -> ClassifyAnswer:
        name = input_field(request)
        inputs = parse_inputs(getattr(request, name))
        options = self._read_options(request, name)
        labels = parse_labels(request)
        self._check_lengths(labels, request.hypothesis_template)
        texts = [one for one in inputs if isinstance(one, str)]
        if self._predictor.nli_labels is None or not texts:
            activation = self._resolve_activation(request, inputs, name)
            _check_threshold_labels(request.threshold, self.model.labels)
            predictions = await self._predictor.predict(inputs, options, activation)
            return await self._answer(request, predictions, activation)
        labels = self._resolve_labels(request, labels, inputs, name)
        _check_threshold_labels(request.threshold, labels)
        template = request.hypothesis_template or self._options.hypothesis_template
        sent = (field for field in ("labels", "hypothesis_template") if getattr(request, field) is not None)
        predictions = await self._predictor.predict_zero_shot(
            texts,
            labels,
            template,
            options,
            multi_label=self._options.multi_label if request.multi_label is None else request.multi_label,
            param=next(sent, options.length_param),
        )
        return await self._answer(request, predictions, "softmax")

    async def _answer(
        self, request: ClassifyRequest, predictions: Predictions, activation: ActivationFunction
    ) -> ClassifyAnswer:
        threshold = self._threshold if request.threshold is None else request.threshold
        if activation == "none":
            threshold = None
        least = thresholds(threshold, predictions.labels, multi_label=predictions.multi_label)
        top_k = self._options.top_k if request.top_k is None else request.top_k
        data = []
        for item in classifications(predictions, least, top_k, raw=bool(request.raw_scores)):
            data.append(item)
            if len(data) % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        return ClassifyAnswer(model=self.name, data=data, usage=Usage(prompt_tokens=predictions.tokens))

    async def _moderate(self, request: ModerationRequest) -> ModerationAnswer:
        texts, single_input = moderation_texts(request)
        if self._moderation is None:
            raise InvalidRequest(
                f"`{self.name}` does not moderate: its manifest has no options.moderation, a table of its labels and "
                "the categories they stand for, such as {toxic: harassment}",
                param="model",
            )
        options = ReadOptions(
            name="input",
            params=item_params("input", request.input),
            windows="max" if self._options.windows == "auto" else self._options.windows,
            max_length=self.model.longest,
            length_param="input",
            overlap=self._options.overlap,
            hint=_MODERATION_HINT,
        )
        if self._options.labels:
            template = self._options.hypothesis_template
            predictions = await self._predictor.predict_zero_shot(
                texts, self._options.labels, template, options, multi_label=True, param=options.length_param
            )
        else:
            predictions = await self._predictor.predict(texts, options, self._activation)
        results = self._moderation.moderate(predictions, single_input=single_input)
        return ModerationAnswer(model=self.name, results=results, usage=Usage(prompt_tokens=predictions.tokens))

    def _read_options(self, request: ClassifyRequest, name: str) -> ReadOptions:
        max_length = self.model.longest if request.max_length is None else request.max_length
        if max_length > self.model.longest:
            raise InvalidRequest(
                f"max_length is {max_length}, the model takes {self.model.longest} tokens", param="max_length"
            )
        windows: Windows = "mean" if self._options.windows == "auto" else self._options.windows
        if request.windows is not None:
            windows = msgspec.convert(request.windows, Windows)
        elif request.truncate:
            windows = "first"
        elif request.truncate is False and windows == "first":
            windows = "off"
        return ReadOptions(
            name=name,
            params=item_params(name, getattr(request, name)),
            windows=windows,
            max_length=max_length,
            length_param=name if request.max_length is None else "max_length",
            overlap=self._options.overlap,
        )

    def _check_lengths(self, labels: list[str] | None, template: str | None) -> None:
        length_guard.check(template or "", self.model.longest, "hypothesis_template")
        for at, label in enumerate(labels or ()):
            length_guard.check(label, self.model.longest, f"labels[{at}]")

    def _resolve_activation(self, request: ClassifyRequest, inputs: Sequence[Input], name: str) -> ActivationFunction:
        """Return the activation for the model's own labels; raises `InvalidRequest` for fields that do not apply.

        With an NLI model, `inputs` are pairs only.
        """
        for field in ("labels", "multi_label", "hypothesis_template"):
            if getattr(request, field) is not None:
                raise InvalidRequest(self._not_applicable(field), param=field)
        count = len(inputs)
        if count * len(self.model.labels) > _SCORES_MAX:
            most = _SCORES_MAX // len(self.model.labels)
            raise InvalidRequest(
                f"{count} texts are too many for a model of {len(self.model.labels)} labels: send {most} at once",
                param=name,
            )
        function = request.function_to_apply
        activation = self._activation if function is None else msgspec.convert(function, ActivationFunction)
        if request.threshold is not None and activation == "none":
            raise UnsupportedParameter(
                "threshold is for probabilities, and these scores are the model's own numbers: leave threshold out",
                param="threshold",
            )
        return activation

    def _not_applicable(self, field: str) -> str:
        labels = option_checks.first_labels(self.model.labels)
        if self._predictor.nli_labels is not None:
            return f"{field} is for texts, and these are pairs, which get the model's own labels: {labels}"
        return (
            f"{field} is for models of natural language inference, whose labels include entailment; "
            f"this one has labels of its own: {labels}"
        )

    def _resolve_labels(
        self, request: ClassifyRequest, labels: list[str] | None, inputs: Sequence[Input], name: str
    ) -> list[str]:
        """Return the labels of a zero-shot request, by default the manifest's; raises `InvalidRequest`."""
        pair = next((at for at, one in enumerate(inputs) if isinstance(one, Pair)), None)
        if pair is not None:
            param = f"{name}[{pair}]"
            raise InvalidRequest(
                f"{param} is a pair and others are texts: this model has labels of its own for pairs and takes labels "
                "for texts, so send them apart",
                param=param,
            )
        if request.function_to_apply is not None:
            raise UnsupportedParameter(
                "function_to_apply is for a model's own labels, and zero-shot scores are probabilities of entailment: "
                "leave function_to_apply out",
                param="function_to_apply",
            )
        labels = labels or self._options.labels
        if not labels:
            raise InvalidRequest(
                "labels is missing: this is a model of natural language inference, which scores any labels for a "
                "text; send some, or set options.labels in the manifest; pairs of texts need none",
                param="labels",
            )
        return labels


def _check_threshold_labels(threshold: float | dict[str, float] | None, labels: Sequence[str]) -> None:
    """Raise `InvalidRequest` for a threshold of an unknown label."""
    for label in threshold if isinstance(threshold, dict) else ():
        if label not in labels:
            raise InvalidRequest(
                f"threshold names `{label}`, which is no label here; {nearest(label, labels)}",
                param=f"threshold.{label}",
            )
