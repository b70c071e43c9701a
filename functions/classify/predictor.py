"""Computes the label scores of texts and pairs: the model's own labels, or any labels by natural language inference."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from functions.classify import zeroshot
from functions.classify.inputs import Input
from functions.classify.read_options import ReadOptions
from functions.classify.scores import ActivationFunction, Aggregation, aggregate_windows, apply_activation
from functions.classify.tokenize import TokenizedInput, WindowTokenizer
from functions.classify.top_labels import Predictions
from functions.engines.batching.classifier import ClassifierModel, Logits
from functions.engines.batching.item import PairFrame
from host.errors import NotFinite

_YIELD_EVERY = 256
"""Texts or labels aggregated before the event loop runs other work."""


class Predictor:
    """Predicts with one model. `entailment` is the name of its entailment label, where it begins with another word."""

    def __init__(self, model: ClassifierModel, entailment: str | None = None) -> None:
        self.model = model
        self.nli_labels = zeroshot.nli_labels(model.labels, entailment)
        """None for a model that was not trained for natural language inference."""
        self.pair = _pair_frame(model)
        """The special tokens around two texts."""
        self._tokenizer = WindowTokenizer(model.tokenizer, self.pair)

    async def predict(
        self, inputs: Sequence[Input], options: ReadOptions, activation: ActivationFunction
    ) -> Predictions:
        """Score the model's own labels for each input; raises `InvalidRequest`, `InputTooLong`, `NotFinite`."""
        tokenized = await self._tokenizer.tokenize(inputs, options)
        logits, aggregation = await self._logits(tokenized, options), _aggregation(options)
        raw = np.empty((len(inputs), len(self.model.labels)))
        for at, (one, rows) in enumerate(zip(tokenized, logits, strict=True)):
            raw[at] = aggregate_windows(rows, one.tokens, aggregation, activation)
            if at % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)
        return Predictions(
            labels=self.model.labels,
            scores=apply_activation(raw, activation),
            raw=raw,
            multi_label=activation == "sigmoid",
            windows=[len(one.items) for one in tokenized],
            truncated=[one.truncated for one in tokenized],
            tokens=_count_tokens(tokenized),
        )

    async def predict_zero_shot(
        self,
        texts: Sequence[str],
        labels: Sequence[str],
        template: str,
        options: ReadOptions,
        *,
        multi_label: bool,
        param: str,
    ) -> Predictions:
        """Score any labels for each text, with a model of natural language inference.

        Raises like `predict`; errors about hypotheses that are too long name `param`.
        """
        nli = self.nli_labels
        assert nli is not None
        hypotheses = [zeroshot.hypothesis(template, label) for label in labels]
        grid = await self._tokenizer.tokenize_with_hypotheses(texts, hypotheses, options, param)
        tokenized = [one for row in grid for one in row]
        rows, aggregation = await self._logits(tokenized, options, repeats=len(labels)), _aggregation(options)
        logits = np.empty((len(tokenized), len(self.model.labels)))
        for at, (one, windows) in enumerate(zip(tokenized, rows, strict=True)):
            logits[at] = zeroshot.aggregate_windows(windows, one.tokens, aggregation, nli)
            if at % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)
        table = logits.reshape(len(texts), len(labels), -1)
        return Predictions(
            labels=labels,
            scores=zeroshot.scores(table, nli, multi_label=multi_label),
            raw=table[..., nli.entailment],
            multi_label=multi_label or len(labels) == 1,
            windows=[max(len(one.items) for one in row) for row in grid],
            truncated=[any(one.truncated for one in row) for row in grid],
            tokens=_count_tokens(tokenized),
        )

    async def _logits(
        self, tokenized: Sequence[TokenizedInput], options: ReadOptions, repeats: int = 1
    ) -> list[list[Logits]]:
        """Return the logits of each input's sequences; `repeats` neighbouring inputs are of one text.

        Texts and pairs are computed apart: models like BART read the last of an input's closing tokens, and take no
        batch of inputs with different numbers of them. Raises `NotFinite` that names the text.
        """
        logits: list[list[Logits]] = [[] for _ in tokenized]
        for pair in (False, True):
            owners = [at for at, one in enumerate(tokenized) if one.pair is pair for _ in one.items]
            items = [item for one in tokenized if one.pair is pair for item in one.items]
            try:
                rows = await self.model.logits(items) if items else []
            except NotFinite as error:
                texts = [owner // repeats for owner in owners]
                raise _with_text_index(error, texts, options.params) from error
            for owner, row in zip(owners, rows, strict=True):
                logits[owner].append(row)
        return logits


def _with_text_index(error: NotFinite, texts: Sequence[int], params: Sequence[str]) -> NotFinite:
    """Return the error with the text's index in place of the sequence's; `texts` has the text of each sequence."""
    if "index" not in error.extra:
        return error
    at = texts[error.extra["index"]]
    return NotFinite(f"{params[at]}: {error.message}", param=params[at], extra={"index": at})


def _pair_frame(model: ClassifierModel) -> PairFrame:
    """Return the special tokens around a pair, without token type ids for a model that has a single type."""
    pair, types = model.tokenizer.pair, model.config.get("type_vocab_size")
    return PairFrame(pair.before, pair.between, pair.after) if isinstance(types, int) and types < 2 else pair


def _aggregation(options: ReadOptions) -> Aggregation:
    return "max" if options.windows == "max" else "mean"


def _count_tokens(tokenized: Sequence[TokenizedInput]) -> int:
    return sum(len(item.ids) for one in tokenized for item in one.items)
