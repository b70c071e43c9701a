"""Embeddings on llama.cpp: GGUF files with pooling; vectors are normalised here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import numpy as np

from functions.embeddings.api import EmbeddingsRequest, EmbeddingType
from functions.embeddings.inputs import Input
from functions.embeddings.instance import EmbeddingsInstance, load_token_ids
from functions.embeddings.openai_token_ids import OpenAITokenIds
from functions.embeddings.options import EmbeddingsOptions
from functions.embeddings.tokenize import InputTokenizer
from functions.engines.batching.item import Item
from functions.engines.checkpoint.sentence.layout import Layout, Mode
from functions.engines.checkpoint.sentence.output import SentenceOutput
from functions.engines.llama.pooled import plan as planning
from functions.engines.llama.pooled.model import PooledModel, Row
from host.function import Load, Plan, Progress

_EPSILON = 1e-12


class LlamaEmbeddings(EmbeddingsInstance):
    """An embedding model of a GGUF file."""

    def __init__(
        self, name: str, plan: Plan, pooled: PooledModel, options: EmbeddingsOptions, token_ids: OpenAITokenIds | None
    ) -> None:
        self._plan = plan
        self._pooled = pooled
        tokenizer = InputTokenizer(
            pooled.tokenizer,
            _layout(pooled, options),
            longest=pooled.longest,
            truncate=options.truncate,
            size=pooled.size,
            token_ids=token_ids,
        )
        super().__init__(name, tokenizer)

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Estimate the memory; raises `LoadFailed` for a model that makes no vectors."""
        plan = planning.make(load, "vectors")
        note = "scaled to length 1" if load.task_options(EmbeddingsOptions).normalize else "not scaled"
        return msgspec.structs.replace(plan, notes=(*plan.notes, note))

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load vocabulary and weights."""
        token_ids = load_token_ids(load)
        pooled = PooledModel.load(load, plan, progress, "vectors")
        return cls(load.manifest.name, plan, pooled, load.task_options(EmbeddingsOptions), token_ids)

    def close(self) -> None:
        """End the threads and free the model."""
        self._pooled.close()

    async def _embed(
        self, request: EmbeddingsRequest, inputs: Sequence[Input], types: tuple[EmbeddingType, ...]
    ) -> tuple[Sequence[Item], Sequence[SentenceOutput]]:
        items = await self._tokenizer.tokenize(request, inputs)
        rows = await self._pooled.rows(items)
        return items, [
            SentenceOutput(dense=_normalized(row) if self._tokenizer.layout.normalizes else row) for row in rows
        ]

    def _longest(self) -> int:
        return self._pooled.longest

    def _detail(self) -> dict[str, Any]:
        return self._tokenizer.layout.detail(self._pooled.size) | {
            "pooling": [self._pooled.pooling.kind],
            "device": self._plan.device,
            "description": self._pooled.model.description(),
        }


def _normalized(row: Row) -> Row:
    normalized: Row = row / max(float(np.linalg.norm(row)), _EPSILON)
    return normalized


def _layout(pooled: PooledModel, options: EmbeddingsOptions) -> Layout:
    """Return prompts, sizes and normalisation as the manifest sets them: a GGUF file has no such settings."""
    mode: Mode = "cls" if pooled.pooling.kind == "cls" else "last" if pooled.pooling.kind == "last" else "mean"
    sizes = tuple(options.matryoshka) if isinstance(options.matryoshka, list) else options.matryoshka is True
    steps = (("Normalize", ""),) if options.normalize else ()
    return Layout(pooling=(mode,), steps=steps, prompts=options.prompts, sizes=sizes)
