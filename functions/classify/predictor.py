"""A loaded model that labels texts and pairs: by the labels it was trained on, or by any, with an NLI model.

It knows items, logits and scores, and nothing of requests or engines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from functions.classify import zeroshot
from functions.classify.inputs import Input
from functions.classify.read_options import ReadOptions
from functions.classify.scores import Applied, Together, applied, together
from functions.classify.selection import Predictions
from functions.classify.tokenize import Passage, TextReader
from functions.engines.batching.classifier import ClassifierModel, Logits
from functions.engines.batching.item import PairFrame
from host.errors import NotFinite

_BREATH = 256
"""Texts or labels put together before other work of the event loop gets its turn."""


class Predictor:
    """Reads texts with one model; `entails` is its label of entailment, where no name says so."""

    def __init__(self, model: ClassifierModel, entails: str | None = None) -> None:
        self.model = model
        self.entailment = zeroshot.entailment(model.labels, entails)
        """None for a model that is not one of natural language inference."""
        self.pair = _frame(model)
        """What stands around two texts."""
        self._passages = TextReader(model.tokenizer, self.pair)

    async def trained(self, given: Sequence[Input], reading: ReadOptions, activation: Applied) -> Predictions:
        """Return what the model's own labels say of each text or pair; raises what `TextReader.whole` and it raise."""
        passages = await self._passages.whole(given, reading)
        numbers, how = await self._computed(passages, reading), _how(reading)
        raw = np.empty((len(given), len(self.model.labels)))
        for at, (passage, rows) in enumerate(zip(passages, numbers, strict=True)):
            raw[at] = together(rows, passage.tokens, how, activation)
            if at % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
        return Predictions(
            labels=self.model.labels,
            scores=applied(raw, activation),
            raw=raw,
            independent=activation == "sigmoid",
            windows=[len(passage.items) for passage in passages],
            truncated=[passage.truncated for passage in passages],
            tokens=_tokens(passages),
        )

    async def chosen(
        self,
        texts: Sequence[str],
        labels: Sequence[str],
        template: str,
        reading: ReadOptions,
        *,
        multi: bool,
        blamed: str,
    ) -> Predictions:
        """Return what is to be said of each text by these labels; for models of natural language inference.

        Raises what `TextReader.paired` raises, which blames the field `blamed` for sentences that are too long.
        """
        places = self.entailment
        assert places is not None
        sentences = [zeroshot.hypothesis(template, label) for label in labels]
        grid = await self._passages.paired(texts, sentences, reading, blamed)
        passages = [passage for row in grid for passage in row]
        numbers, how = await self._computed(passages, reading, each=len(labels)), _how(reading)
        logits = np.empty((len(passages), len(self.model.labels)))
        for at, (passage, rows) in enumerate(zip(passages, numbers, strict=True)):
            logits[at] = zeroshot.read(rows, passage.tokens, how, places)
            if at % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
        table = logits.reshape(len(texts), len(labels), -1)
        return Predictions(
            labels=labels,
            scores=zeroshot.scores(table, places, multi=multi),
            raw=table[..., places.yes],
            independent=multi or len(labels) == 1,
            windows=[max(len(passage.items) for passage in row) for row in grid],
            truncated=[any(passage.truncated for passage in row) for row in grid],
            tokens=_tokens(passages),
        )

    async def _computed(self, passages: Sequence[Passage], reading: ReadOptions, each: int = 1) -> list[list[Logits]]:
        """Return the logits of each passage's items; `each` passages are of one text.

        Texts and pairs are computed apart: models like BART read the last of an input's closing tokens, and take no
        batch of inputs that have another number of them. Raises `NotFinite` that names the text.
        """
        found: list[list[Logits]] = [[] for _ in passages]
        for kind in (False, True):
            owners = [at for at, passage in enumerate(passages) if passage.pair is kind for _ in passage.items]
            items = [item for passage in passages if passage.pair is kind for item in passage.items]
            try:
                rows = await self.model.logits(items) if items else []
            except NotFinite as error:
                texts = [owner // each for owner in owners]
                raise _named(error, texts, reading.places) from error
            for owner, row in zip(owners, rows, strict=True):
                found[owner].append(row)
        return found


def _named(error: NotFinite, texts: Sequence[int], places: Sequence[str]) -> NotFinite:
    """Return the error with the text's index in place of the item's; `texts` are those of the items."""
    if "index" not in error.extra:
        return error
    at = texts[error.extra["index"]]
    return NotFinite(f"{places[at]}: {error.message}", param=places[at], extra={"index": at})


def _frame(model: ClassifierModel) -> PairFrame:
    """Return what stands around a pair, without segments where the model knows only one."""
    pair, kinds = model.tokenizer.pair, model.config.get("type_vocab_size")
    return PairFrame(pair.before, pair.between, pair.after) if isinstance(kinds, int) and kinds < 2 else pair


def _how(reading: ReadOptions) -> Together:
    return "max" if reading.how == "max" else "mean"


def _tokens(passages: Sequence[Passage]) -> int:
    return sum(len(item.ids) for passage in passages for item in passage.items)
