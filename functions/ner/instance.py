"""Entities on any engine with a head on tokens: texts become windows of tokens, their logits words with labels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np

from functions.engines.batching.classifier import ClassifierModel, Head, Logits
from functions.engines.batching.classifier_instance import ClassifierInstance
from functions.engines.batching.item import Encoding, Item
from functions.ner.api import Entity, Found, NerAnswer, NerRequest
from functions.ner.inputs import field_of, texts_of
from functions.ner.offsets import told
from functions.ner.options import NerOptions
from functions.ner.redaction import Redaction, redacted
from functions.ner.request_options import RequestOptions, default_overlap, request_options
from functions.ner.spans import place, spans
from functions.ner.strategies import judged
from functions.ner.tags import Tags
from functions.ner.tokenize import Named, TextEncoder
from functions.ner.windows import Window, stitched, windows
from functions.ner.words import Words, words
from host.checks import item_params
from host.errors import InvalidRequest, LoadFailed, NotFinite
from host.function import Load, Plan, Usage

A = TypeVar("A")

_WINDOWS_MAX = 16_384
"""Windows of one text."""
_BRIEF = 2048
"""Tokens of texts whose words are found on the event loop, which takes a few milliseconds; more go to a thread."""


class Text(msgspec.Struct, frozen=True):
    """One text of a request, made ready."""

    name: str
    """Its place in the request."""
    text: str
    pieces: Encoding
    words: Words
    cut: list[Window]


class NerInstance(ClassifierInstance):
    """A loaded model that labels tokens."""

    head: ClassVar[Head] = "token"

    def __init__(self, load: Load, model: ClassifierModel) -> None:
        """Raises `LoadFailed` for a head that labels whole texts, and for a context without room for a token."""
        super().__init__(load, model)
        _check_head(model)
        self._options = load.task_options(NerOptions)
        self._tags = Tags(model.labels, self._options.rename)
        self._outside = self._tags.types < 0
        model.tokenizer.literal()  # else who writes [SEP] into a text could hide what stands around it
        self._reading = TextEncoder(model.tokenizer)
        self._before = np.array(model.tokenizer.prefix, dtype=np.int32)
        self._after = np.array(model.tokenizer.suffix, dtype=np.int32)
        self._extra = len(self._before) + len(self._after)
        if model.longest <= self._extra:
            raise LoadFailed(f"context must be more than the {self._extra} special tokens of this model")

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        plan = super().plan(load)
        return msgspec.structs.replace(plan, notes=(*plan.notes, "longer texts are read in windows"))

    async def answer(self, request: NerRequest) -> NerAnswer:
        """Return the entities of each text.

        Raises `InvalidRequest`, `InputTooLong` for megabytes in one text, and `NotFinite`, each naming the text.
        """
        wanted = request_options(request, self._options, self._tags, longest=self.model.longest, extra=self._extra)
        redaction = Redaction(wanted.redaction) if wanted.redaction is not None else None
        field = field_of(request)
        given = getattr(request, field)
        named = list(zip(item_params(field, given), texts_of(given), strict=True))
        data: list[Found] = []
        tokens = 0
        async with aclosing(self._reading.groups(named)) as groups:
            async for pieces in groups:
                group = named[len(data) : len(data) + len(pieces)]
                size = sum(len(found.ids) for found in pieces)
                texts = await _computed(size, partial(self._made_ready, group, pieces, wanted))
                logits = await self._logits(texts)
                data += await _computed(size, partial(self._found, texts, logits, wanted, redaction, len(data)))
                tokens += sum(last - first + self._extra for text in texts for first, last in text.cut)
        return NerAnswer(model=self.name, data=data, usage=Usage(prompt_tokens=tokens))

    def detail(self) -> dict[str, Any]:
        """Return the labels, and what is done where no request says otherwise."""
        return {
            "labels": list(self._tags.names),
            "tags": self._tags.scheme,
            "aggregation_strategy": self._options.aggregation_strategy,
            "stride": default_overlap(self._options, self.model.longest - self._extra),
        }

    def _made_ready(self, named: Sequence[Named], read: Sequence[Encoding], wanted: RequestOptions) -> list[Text]:
        texts: list[Text] = []
        for (name, text), pieces in zip(named, read, strict=True):
            found = words(text, pieces, self._options.words)
            count = len(pieces.ids)
            cut = windows(found.starts, count, wanted.room, wanted.overlap) if count else []
            if len(cut) > _WINDOWS_MAX:
                raise InvalidRequest(
                    f"{name} makes {len(cut)} windows of {wanted.room} tokens, {_WINDOWS_MAX} are computed at most: "
                    "send it in parts, or set a larger max_length or a smaller stride",
                    param=name,
                )
            texts.append(Text(name, text, pieces, found, cut))
        return texts

    async def _logits(self, texts: Sequence[Text]) -> list[Logits]:
        """Return the logits of all windows; raises `NotFinite` that names the text."""
        try:
            return await self.model.logits([item for text in texts for item in self._items(text)])
        except NotFinite as error:
            if "index" not in error.extra:
                raise
            name = [text.name for text in texts for _ in text.cut][error.extra["index"]]
            raise NotFinite(f"{name}: {error.message}", param=name) from error

    def _items(self, text: Text) -> list[Item]:
        parts = (text.pieces.ids[first:last] for first, last in text.cut)
        return [Item(ids=np.concatenate([self._before, part, self._after])) for part in parts]

    def _found(
        self,
        texts: Sequence[Text],
        logits: Sequence[Logits],
        wanted: RequestOptions,
        redaction: Redaction | None,
        first: int,
    ) -> list[Found]:
        """Return the entities of texts; `first` is the index of the first one in the request."""
        found: list[Found] = []
        at = 0
        for index, text in enumerate(texts, first):
            parts = logits[at : at + len(text.cut)]
            at += len(text.cut)
            entities = self._entities(text, parts, wanted, redaction) if parts else []
            shown = redacted(text.text, entities) if redaction is not None else None
            found.append(Found(index=index, entities=told(text.text, entities, wanted.unit), redacted_text=shown))
        return found

    def _entities(
        self, text: Text, parts: Sequence[Logits], wanted: RequestOptions, redaction: Redaction | None
    ) -> list[Entity]:
        inner = [part[len(self._before) : len(part) - len(self._after)] for part in parts]
        starts = text.words.starts
        rows = stitched(inner, text.cut, starts, self._outside)
        verdicts = judged(rows, starts, wanted.strategy, self._tags)
        entities: list[Entity] = []
        for span in spans(verdicts, text.words, self._tags, join=self._options.join):
            where = place(span, text.words)
            if where is None or span.score < wanted.threshold:
                continue
            if wanted.kept is not None and span.type not in wanted.kept:
                continue
            label, shown = self._tags.names[span.type], text.text[slice(*where)]
            instead = redaction.replacement(label, shown) if redaction is not None else None
            entities.append(
                Entity(text=shown, label=label, start=where[0], end=where[1], score=span.score, replacement=instead)
            )
        return entities


async def _computed(size: int, work: Callable[[], A]) -> A:
    return work() if size <= _BRIEF else await asyncio.to_thread(work)


def _check_head(model: ClassifierModel) -> None:
    """Raise for a head whose weights have the same names and mean something else."""
    architectures = model.config.get("architectures") or ()
    if architectures and all(str(name).endswith("ForSequenceClassification") for name in architectures):
        raise LoadFailed(f"{architectures[0]} labels whole texts, not words: serve it with `task: classify`")
