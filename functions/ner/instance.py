"""The loaded model of the ner function, on any engine: splits texts into windows and finds entities in their logits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np

from functions.engines.batching.classifier import ClassifierModel, HeadKind, Logits
from functions.engines.batching.classifier_instance import ClassifierInstance
from functions.engines.batching.item import Encoding, Item
from functions.ner.aggregation import word_labels
from functions.ner.api import Entity, NerAnswer, NerRequest, TextEntities
from functions.ner.inputs import input_field, parse_texts
from functions.ner.offsets import convert_offsets
from functions.ner.options import NerOptions
from functions.ner.redaction import Redaction, redacted
from functions.ner.request_options import ResolvedOptions, default_overlap, resolve_options
from functions.ner.spans import char_span, group_entities
from functions.ner.tags import TagScheme
from functions.ner.tokenize import GroupTokenizer, NamedText
from functions.ner.windows import Window, merge_windows, windows
from functions.ner.words import Words, words
from host.errors import InvalidRequest, LoadFailed, NotFinite
from host.function import Load, Plan, Usage
from host.request_checks import item_params

A = TypeVar("A")

_WINDOWS_MAX = 16_384
"""Windows of one text."""
_INLINE_TOKENS = 2048
"""Tokens of texts that are processed on the event loop, which takes a few milliseconds; more go to a thread."""


class TokenizedText(msgspec.Struct, frozen=True):
    """One text of a request with its tokens, words and windows."""

    name: str
    """Its path in the request."""
    text: str
    encoding: Encoding
    words: Words
    windows: list[Window]


class NerInstance(ClassifierInstance):
    """A loaded model with a token classification head."""

    head: ClassVar[HeadKind] = "token"

    def __init__(self, load: Load, model: ClassifierModel) -> None:
        """Raises `LoadFailed` for a head that labels whole texts, and for a context without room for a token."""
        super().__init__(load, model)
        _check_head(model)
        self._options = load.task_options(NerOptions)
        self._tags = TagScheme(model.labels, self._options.rename)
        self._outside = self._tags.types < 0
        model.tokenizer.literal()  # else a text with [SEP] in it could hide what follows
        self._tokenizer = GroupTokenizer(model.tokenizer)
        self._prefix = np.array(model.tokenizer.prefix, dtype=np.int32)
        self._suffix = np.array(model.tokenizer.suffix, dtype=np.int32)
        self._special_tokens = len(self._prefix) + len(self._suffix)
        if model.longest <= self._special_tokens:
            raise LoadFailed(f"context must be more than the {self._special_tokens} special tokens of this model")

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        plan = super().plan(load)
        return msgspec.structs.replace(plan, notes=(*plan.notes, "longer texts are read in windows"))

    async def answer(self, request: NerRequest) -> NerAnswer:
        """Return the entities of each text.

        Raises `InvalidRequest`, `InputTooLong` for a text of more than 262,144 tokens, and `NotFinite`, each naming
        the text.
        """
        options = resolve_options(
            request, self._options, self._tags, max_length=self.model.longest, special_tokens=self._special_tokens
        )
        redaction = Redaction(options.redaction) if options.redaction is not None else None
        field = input_field(request)
        value = getattr(request, field)
        named = list(zip(item_params(field, value), parse_texts(value), strict=True))
        data: list[TextEntities] = []
        tokens = 0
        async with aclosing(self._tokenizer.groups(named)) as groups:
            async for encodings in groups:
                group = named[len(data) : len(data) + len(encodings)]
                size = sum(len(encoding.ids) for encoding in encodings)
                texts = await _run(size, partial(self._prepare, group, encodings, options))
                logits = await self._logits(texts)
                data += await _run(size, partial(self._find, texts, logits, options, redaction, len(data)))
                tokens += sum(end - begin + self._special_tokens for text in texts for begin, end in text.windows)
        return NerAnswer(model=self.name, data=data, usage=Usage(prompt_tokens=tokens))

    def detail(self) -> dict[str, Any]:
        """Return the entity types, the tag scheme, and the defaults of requests."""
        return {
            "labels": list(self._tags.names),
            "tags": self._tags.scheme,
            "aggregation_strategy": self._options.aggregation_strategy,
            "stride": default_overlap(self._options, self.model.longest - self._special_tokens),
        }

    def _prepare(
        self, named: Sequence[NamedText], encodings: Sequence[Encoding], options: ResolvedOptions
    ) -> list[TokenizedText]:
        """Find the words of each text and split it into windows; raises `InvalidRequest` for too many windows."""
        texts: list[TokenizedText] = []
        for (name, text), encoding in zip(named, encodings, strict=True):
            words_ = words(text, encoding, self._options.words)
            count = len(encoding.ids)
            windows_ = windows(words_.starts, count, options.window, options.overlap) if count else []
            if len(windows_) > _WINDOWS_MAX:
                raise InvalidRequest(
                    f"{name} makes {len(windows_)} windows of {options.window} tokens, {_WINDOWS_MAX} are computed at "
                    "most: send it in parts, or set a larger max_length or a smaller stride",
                    param=name,
                )
            texts.append(TokenizedText(name, text, encoding, words_, windows_))
        return texts

    async def _logits(self, texts: Sequence[TokenizedText]) -> list[Logits]:
        """Return the logits of all windows; raises `NotFinite` that names the text."""
        try:
            return await self.model.logits([item for text in texts for item in self._items(text)])
        except NotFinite as error:
            if "index" not in error.extra:
                raise
            name = [text.name for text in texts for _ in text.windows][error.extra["index"]]
            raise NotFinite(f"{name}: {error.message}", param=name) from error

    def _items(self, text: TokenizedText) -> list[Item]:
        parts = (text.encoding.ids[begin:end] for begin, end in text.windows)
        return [Item(ids=np.concatenate([self._prefix, part, self._suffix])) for part in parts]

    def _find(
        self,
        texts: Sequence[TokenizedText],
        logits: Sequence[Logits],
        options: ResolvedOptions,
        redaction: Redaction | None,
        first: int,
    ) -> list[TextEntities]:
        """Return the entities of texts from the logits of their windows; `first` is the index of the first text."""
        results: list[TextEntities] = []
        at = 0
        for index, text in enumerate(texts, first):
            parts = logits[at : at + len(text.windows)]
            at += len(text.windows)
            entities = self._entities(text, parts, options, redaction) if parts else []
            shown = redacted(text.text, entities) if redaction is not None else None
            converted = convert_offsets(text.text, entities, options.offset_unit)
            results.append(TextEntities(index=index, entities=converted, redacted_text=shown))
        return results

    def _entities(
        self, text: TokenizedText, parts: Sequence[Logits], options: ResolvedOptions, redaction: Redaction | None
    ) -> list[Entity]:
        inner = [part[len(self._prefix) : len(part) - len(self._suffix)] for part in parts]
        starts = text.words.starts
        rows = merge_windows(inner, text.windows, starts, self._outside)
        labels = word_labels(rows, starts, options.strategy, self._tags)
        entities: list[Entity] = []
        for span in group_entities(labels, text.words, self._tags, join=self._options.join):
            chars = char_span(span, text.words)
            if chars is None or span.score < options.threshold:
                continue
            if options.types is not None and span.type not in options.types:
                continue
            label, shown = self._tags.names[span.type], text.text[slice(*chars)]
            replacement = redaction.replacement(label, shown) if redaction is not None else None
            entities.append(
                Entity(text=shown, label=label, start=chars[0], end=chars[1], score=span.score, replacement=replacement)
            )
        return entities


async def _run(tokens: int, work: Callable[[], A]) -> A:
    """Run work on so many tokens: in a thread where it would hold up the event loop."""
    return work() if tokens <= _INLINE_TOKENS else await asyncio.to_thread(work)


def _check_head(model: ClassifierModel) -> None:
    """Raise `LoadFailed` for a sequence classification head, whose weights have the same names."""
    architectures = model.config.get("architectures") or ()
    if architectures and all(str(name).endswith("ForSequenceClassification") for name in architectures):
        raise LoadFailed(f"{architectures[0]} labels whole texts, not words: serve it with `task: classify`")
