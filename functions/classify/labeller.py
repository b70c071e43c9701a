"""A loaded model that labels texts: by the labels it was trained on, or by any, with an NLI model.

It knows items, logits and scores, and nothing of requests or engines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from functions.classify import zeroshot
from functions.classify.passages import Passage, Passages, Reading
from functions.classify.scores import Applied, Together, applied, together
from functions.classify.selection import Read
from functions.engines.batching.headed import HeadedModel, Logits

_BREATH = 256
"""Texts or labels put together before other work of the event loop gets its turn."""


class Labeller:
    """Reads texts with one model; `activation` is for its own labels."""

    def __init__(self, model: HeadedModel, activation: Applied) -> None:
        self.model = model
        self.activation = activation
        self.entailment = zeroshot.entailment(model.labels)
        """None for a model that is not one of natural language inference."""
        self._passages = Passages(model.tokenizer)

    async def trained(self, texts: Sequence[str], reading: Reading) -> Read:
        """Return what the model's own labels say of each text; raises what `Passages.whole` and the model raise."""
        passages = await self._passages.whole(texts, reading)
        numbers, how = await self._computed(passages), _how(reading)
        raw = np.empty((len(texts), len(self.model.labels)))
        for at, (passage, rows) in enumerate(zip(passages, numbers, strict=True)):
            raw[at] = together(rows, passage.tokens, how, self.activation)
            if at % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
        return Read(
            labels=self.model.labels,
            scores=applied(raw, self.activation),
            raw=raw,
            independent=self.activation == "sigmoid",
            windows=[len(passage.items) for passage in passages],
            truncated=[passage.truncated for passage in passages],
            tokens=_tokens(passages),
        )

    async def chosen(
        self, texts: Sequence[str], labels: Sequence[str], template: str, reading: Reading, *, multi: bool
    ) -> Read:
        """Return what is to be said of each text by these labels; for models of natural language inference."""
        places = self.entailment
        assert places is not None
        sentences = [zeroshot.hypothesis(template, label) for label in labels]
        seconds = [pieces.ids for pieces in await self.model.tokenizer.pieces(sentences)]
        grid = await self._passages.paired(texts, seconds, reading)
        passages = [passage for row in grid for passage in row]
        numbers, how = await self._computed(passages), _how(reading)
        logits = np.empty((len(passages), len(self.model.labels)))
        for at, (passage, rows) in enumerate(zip(passages, numbers, strict=True)):
            logits[at] = zeroshot.read(rows, passage.tokens, how, places)
            if at % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
        table = logits.reshape(len(texts), len(labels), -1)
        return Read(
            labels=labels,
            scores=zeroshot.scores(table, places, multi=multi),
            raw=table[..., places.yes],
            independent=multi or len(labels) == 1,
            windows=[max(len(passage.items) for passage in row) for row in grid],
            truncated=[any(passage.truncated for passage in row) for row in grid],
            tokens=_tokens(passages),
        )

    async def _computed(self, passages: Sequence[Passage]) -> list[list[Logits]]:
        """Return the logits of each passage's items."""
        rows = iter(await self.model.logits([item for passage in passages for item in passage.items]))
        return [[next(rows) for _ in passage.items] for passage in passages]


def _how(reading: Reading) -> Together:
    return "max" if reading.how == "max" else "mean"


def _tokens(passages: Sequence[Passage]) -> int:
    return sum(len(item.ids) for passage in passages for item in passage.items)
