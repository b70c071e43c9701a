"""A loaded classifier that answers requests, whatever engine runs it: labels with scores, and OpenAI's moderations."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Self

import msgspec

from functions.classify.api import Classified, ClassifyRequest, Moderated, ModerationRequest
from functions.classify.categories import nearest
from functions.classify.inputs import check, labels, moderated, texts
from functions.classify.labeller import Labeller
from functions.classify.options import ClassifyOptions, Windows, check_labels
from functions.classify.passages import Reading
from functions.classify.scores import activation
from functions.classify.selection import Read, classifications, thresholds
from functions.classify.verdicts import Verdicts
from functions.engines.batching import brevity
from functions.engines.batching.headed import HeadedEngine, HeadedModel
from host.errors import InvalidRequest, LoadFailed, UnsupportedParameter
from host.function import Facts, Instance, Load, Plan, Progress, Usage

_CAPACITY = 256
"""Requests side by side; the batcher merges them, so more would only wait here instead of in the host."""
_CELLS_MAX = 1 << 18
"""Scores in one answer: texts times labels."""
_BREATH = 64
"""Texts answered before other work of the event loop gets its turn."""


class Classifier(Instance):
    """A classifier, or a model of natural language inference."""

    engine: ClassVar[type[HeadedEngine]]

    def __init__(self, name: str, model: HeadedModel, knobs: ClassifyOptions) -> None:
        """Raises `LoadFailed` for options that do not suit the model."""
        self._name = name
        self._model = model
        self._knobs = knobs
        self._activation = activation(knobs.activation, model.config.get("problem_type"), len(model.labels))
        self._labeller = Labeller(model, self._activation)
        self._said = None if knobs.threshold == "auto" else knobs.threshold
        self._check_options()
        _check_context(model, inference=self._labeller.entailment is not None)
        if knobs.moderation or self._labeller.entailment is not None:
            # A text must not end itself and go on as the hypothesis, nor hide behind tokens that mean its end.
            model.tokenizer.literal()
        self._verdicts = Verdicts(knobs.moderation, self._said) if knobs.moderation else None

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        return cls.engine.plan(load)

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer, weights and head; raises `LoadFailed`, also for options that do not suit them."""
        knobs = msgspec.msgpack.decode(load.function_options, type=ClassifyOptions)
        model = cls.engine.load(load, plan, progress, "sequence")
        try:
            return cls(load.manifest.name, model, knobs)
        except BaseException:
            model.close()
            raise

    async def answer(self, request: ClassifyRequest | ModerationRequest) -> Classified | Moderated:
        """Return what each text is. Raises `InvalidRequest`, and `InputTooLong` for what may not be cut."""
        if isinstance(request, ModerationRequest):
            return await self._moderate(request)
        return await self._classify(request)

    def facts(self) -> Facts:
        """Return what was chosen."""
        zero_shot = self._labeller.entailment is not None
        detail: dict[str, Any] = {
            **self._model.detail(),
            "activation": self._activation,
            "zero_shot": zero_shot,
            "moderation": sorted(self._knobs.moderation),
        }
        return Facts(capacity=_CAPACITY, context=self._model.longest, detail=detail)

    def close(self) -> None:
        """End the model's threads."""
        self._model.close()

    async def _classify(self, request: ClassifyRequest) -> Classified:
        check(request)
        name, given = texts(request)
        reading = self._reading(request, name)
        if request.threshold is not None and self._activation == "none" and self._labeller.entailment is None:
            raise UnsupportedParameter("this model's scores are no probabilities: leave it out", param="threshold")
        wanted = labels(request)
        chosen = wanted or self._knobs.labels
        multi = self._knobs.multi_label if request.multi_label is None else request.multi_label
        template = request.hypothesis_template or self._knobs.hypothesis_template
        self._check_brief(wanted, template)
        self._check_kind(request, wanted, name, len(given))
        if chosen:
            found = await self._labeller.chosen(given, chosen, template, reading, multi=multi)
        else:
            found = await self._labeller.trained(given, reading)
        return await self._classified(request, found)

    async def _classified(self, request: ClassifyRequest, found: Read) -> Classified:
        if isinstance(request.threshold, dict):
            _check_named(request.threshold, found)
        said = self._said if request.threshold is None else request.threshold
        least = thresholds(said, found.labels, independent=found.independent)
        top_k = self._knobs.top_k if request.top_k is None else request.top_k
        data = []
        for item in classifications(found, least, top_k, raw=bool(request.raw_scores)):
            data.append(item)
            if len(data) % _BREATH == 0:
                await asyncio.sleep(0)
        return Classified(model=self._name, data=data, usage=Usage(prompt_tokens=found.tokens))

    async def _moderate(self, request: ModerationRequest) -> Moderated:
        given, parts = moderated(request)
        if self._verdicts is None:
            raise InvalidRequest(
                f"`{self._name}` does not moderate: its manifest has no options.moderation, a table of its labels and "
                "the categories they stand for, such as {toxic: harassment}",
                param="model",
            )
        how: Windows = "max" if self._knobs.windows == "auto" else self._knobs.windows
        reading = Reading(name="input", how=how, limit=self._model.longest, overlap=self._knobs.overlap)
        if self._knobs.labels:
            template = self._knobs.hypothesis_template
            found = await self._labeller.chosen(given, self._knobs.labels, template, reading, multi=True)
        else:
            found = await self._labeller.trained(given, reading)
        results = self._verdicts.judge(found, one=parts)
        return Moderated(model=self._name, results=results, usage=Usage(prompt_tokens=found.tokens))

    def _reading(self, request: ClassifyRequest, name: str) -> Reading:
        limit = self._model.longest if request.max_length is None else request.max_length
        if limit > self._model.longest:
            raise InvalidRequest(
                f"max_length is {limit}, the model takes {self._model.longest} tokens", param="max_length"
            )
        how: Windows = "mean" if self._knobs.windows == "auto" else self._knobs.windows
        if request.windows is not None:
            how = msgspec.convert(request.windows, Windows)
        elif request.truncate:
            how = "first"
        elif request.truncate is False and how == "first":
            how = "off"
        return Reading(name=name, how=how, limit=limit, overlap=self._knobs.overlap)

    def _check_brief(self, wanted: list[str] | None, template: str) -> None:
        brevity.check(template, self._model.longest, "hypothesis_template")
        for at, label in enumerate(wanted or ()):
            brevity.check(label, self._model.longest, f"labels[{at}]")

    def _check_kind(self, request: ClassifyRequest, wanted: list[str] | None, name: str, count: int) -> None:
        """Raise `InvalidRequest` for labels that the model cannot choose from, and for a model that needs some."""
        if self._labeller.entailment is None:
            for field in ("labels", "multi_label", "hypothesis_template"):
                if getattr(request, field) is not None:
                    raise InvalidRequest(
                        f"{field} is for models of natural language inference, whose labels include entailment; "
                        f"this one has labels of its own: {_few(self._model.labels)}",
                        param=field,
                    )
            if count * len(self._model.labels) > _CELLS_MAX:
                most = _CELLS_MAX // len(self._model.labels)
                raise InvalidRequest(
                    f"{count} texts are too many for a model of {len(self._model.labels)} labels: send {most} at once",
                    param=name,
                )
        elif not (wanted or self._knobs.labels):
            raise InvalidRequest(
                "labels is missing: this is a model of natural language inference, which scores any labels for a "
                "text; send some, or set options.labels in the manifest",
                param="labels",
            )

    def _check_options(self) -> None:
        """Raise `LoadFailed` for options that do not suit the model's labels."""
        knobs, own = self._knobs, self._model.labels
        inference = self._labeller.entailment is not None
        if inference and knobs.moderation and not knobs.labels:
            raise LoadFailed("options.labels is needed: `moderation` says what labels mean, and this model has none")
        if inference:
            return
        if knobs.labels:
            raise LoadFailed(f"options.labels is for models of natural language inference; this one has {_few(own)}")
        try:
            check_labels("moderation", knobs.moderation, own)
            check_labels("threshold", self._said if isinstance(self._said, dict) else (), own)
        except ValueError as error:
            raise LoadFailed(f"options: {error}") from None
        if self._activation == "none" and (knobs.moderation or self._said is not None):
            key = "moderation" if knobs.moderation else "threshold"
            raise LoadFailed(f"options.{key} needs probabilities, and this model's scores are plain numbers")


def _check_context(model: HeadedModel, *, inference: bool) -> None:
    frame = len(model.tokenizer.prefix) + len(model.tokenizer.suffix)
    taken = model.tokenizer.pair.extra if inference else frame
    if model.longest <= taken:
        raise LoadFailed(f"context is {model.longest}: it must be more than the {taken} special tokens of this model")


def _check_named(given: dict[str, float], found: Read) -> None:
    for label in given:
        if label not in found.labels:
            raise InvalidRequest(
                f"threshold names `{label}`, which is no label here; {nearest(label, found.labels)}",
                param=f"threshold.{label}",
            )


def _few(labels_: tuple[str, ...]) -> str:
    return ", ".join(labels_[:8]) + (", …" if len(labels_) > 8 else "")
