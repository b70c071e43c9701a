"""Entities on any engine with a head on tokens: texts become windows of tokens, their logits words with labels.

It knows no engine; a subclass names the model's class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import msgspec
import numpy as np

from functions.engines.batching.classifier import ClassifierModel, Logits
from functions.engines.batching.item import Encoding, Item
from functions.ner.api import Entity, Found, NerAnswer, NerRequest
from functions.ner.inputs import check, listed, places
from functions.ner.offsets import told
from functions.ner.options import NerOptions
from functions.ner.redaction import Redaction, redacted
from functions.ner.request_options import RequestOptions, default_overlap, looking
from functions.ner.spans import place, spans
from functions.ner.strategies import judged
from functions.ner.tags import Tags
from functions.ner.tokenize import Named, TextEncoder
from functions.ner.windows import Window, stitched, windows
from functions.ner.words import Words, words
from host.errors import InvalidRequest, LoadFailed, NotFinite
from host.function import Instance, InstanceInfo, Load, Plan, Progress, Usage

A = TypeVar("A")

_CAPACITY = 256
"""Requests side by side; the batcher merges them, so more would only wait here instead of in the host."""
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


class NerInstance(Instance):
    """A loaded model that labels tokens."""

    model: ClassVar[Any]
    """The engine's class of models, which makes a `ClassifierModel` of a load: `plan(load)`, `load(…, head)`."""

    def __init__(self, name: str, headed: ClassifierModel, options: NerOptions) -> None:
        self._name = name
        self._headed = headed
        self._options = options
        self._tags = Tags(headed.labels, options.rename)
        self._outside = self._tags.types < 0
        headed.tokenizer.literal()  # else who writes [SEP] into a text could hide what stands around it
        self._reading = TextEncoder(headed.tokenizer)
        self._before = np.array(headed.tokenizer.prefix, dtype=np.int32)
        self._after = np.array(headed.tokenizer.suffix, dtype=np.int32)
        self._extra = len(self._before) + len(self._after)
        if headed.longest <= self._extra:
            raise LoadFailed(f"context must be more than the {self._extra} special tokens of this model")

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        plan: Plan = cls.model.plan(load)
        return msgspec.structs.replace(plan, notes=(*plan.notes, "longer texts are read in windows"))

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer and weights; raises `LoadFailed`, also for a model whose head is for whole texts."""
        headed: ClassifierModel = cls.model.load(load, plan, progress, "token")
        try:
            _check_head(headed)
            return cls(load.manifest.name, headed, _options(load))
        except BaseException:
            headed.close()
            raise

    async def answer(self, request: NerRequest) -> NerAnswer:
        """Return the entities of each text.

        Raises `InvalidRequest`, `InputTooLong` for megabytes in one text, and `NotFinite`, each naming the text.
        """
        check(request)
        wanted = looking(request, self._options, self._tags, longest=self._headed.longest, extra=self._extra)
        redaction = Redaction(wanted.redaction) if wanted.redaction is not None else None
        named = list(zip(places(request), listed(request), strict=True))
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
        return NerAnswer(model=self._name, data=data, usage=Usage(prompt_tokens=tokens))

    def info(self) -> InstanceInfo:
        """Return what was chosen."""
        room = self._headed.longest - self._extra
        detail = self._headed.detail() | {
            "labels": list(self._tags.names),
            "tags": self._tags.scheme,
            "aggregation_strategy": self._options.aggregation_strategy,
            "stride": default_overlap(self._options, room),
        }
        return InstanceInfo(capacity=_CAPACITY, context=self._headed.longest, detail=detail)

    def close(self) -> None:
        """End the threads."""
        self._headed.close()

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
            return await self._headed.logits([item for text in texts for item in self._items(text)])
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


def _options(load: Load) -> NerOptions:
    return msgspec.msgpack.decode(load.function_options, type=NerOptions)


def _check_head(headed: ClassifierModel) -> None:
    """Raise for a head whose weights have the same names and mean something else."""
    architectures = headed.config.get("architectures") or ()
    if architectures and all(str(name).endswith("ForSequenceClassification") for name in architectures):
        raise LoadFailed(f"{architectures[0]} labels whole texts, not words: serve it with `task: classify`")
