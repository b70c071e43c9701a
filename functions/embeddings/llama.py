"""Embeddings on llama.cpp: texts are tokenised, merged with everybody's into batches, pooled, scaled, cut to size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import numpy as np

from functions.embeddings.api import EmbeddingsRequest, Kind
from functions.embeddings.inputs import Given
from functions.embeddings.instance import EmbeddingsInstance, function_options, vocabulary
from functions.embeddings.openai_token_ids import OpenAITokenIds
from functions.embeddings.options import EmbeddingsOptions
from functions.embeddings.tokenize import InputTokenizer
from functions.engines.batching.item import Item
from functions.engines.checkpoint.sentence.layout import Layout, Mode
from functions.engines.checkpoint.sentence.output import SentenceOutput
from functions.engines.llama.pooled import plan as planning
from functions.engines.llama.pooled.model import PooledModel, Row
from host.function import Load, Plan, Progress

_TINY = 1e-12


class LlamaEmbeddings(EmbeddingsInstance):
    """A GGUF file that embeds."""

    def __init__(
        self, name: str, plan: Plan, pooled: PooledModel, said: EmbeddingsOptions, foreign: OpenAITokenIds | None
    ) -> None:
        self._plan = plan
        self._pooled = pooled
        layout = _layout(pooled, said)
        items = InputTokenizer(
            pooled.words, layout, longest=pooled.longest, truncate=said.truncate, size=pooled.size, foreign=foreign
        )
        super().__init__(name, items)

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Weigh the file; raises `LoadFailed` for one that embeds nothing."""
        plan = planning.make(load, "vectors")
        note = "scaled to length 1" if function_options(load).normalize else "not scaled"
        return msgspec.structs.replace(plan, notes=(*plan.notes, note))

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load vocabulary and weights."""
        foreign = vocabulary(load)
        pooled = PooledModel.load(load, plan, progress, "vectors")
        return cls(load.manifest.name, plan, pooled, function_options(load), foreign)

    def close(self) -> None:
        """End the threads and free the model."""
        self._pooled.close()

    async def _computed(
        self, request: EmbeddingsRequest, inputs: Sequence[Given], kinds: tuple[Kind, ...]
    ) -> tuple[Sequence[Item], Sequence[SentenceOutput]]:
        items = await self._items.make(request, inputs)
        rows = await self._pooled.rows(items)
        return items, [SentenceOutput(dense=_scaled(row) if self._items.layout.normalizes else row) for row in rows]

    def _longest(self) -> int:
        return self._pooled.longest

    def _detail(self) -> dict[str, Any]:
        return self._items.layout.detail(self._pooled.size) | {
            "pooling": [self._pooled.pooling.kind],
            "device": self._plan.device,
            "description": self._pooled.model.description(),
        }


def _scaled(row: Row) -> Row:
    scaled: Row = row / max(float(np.linalg.norm(row)), _TINY)
    return scaled


def _layout(pooled: PooledModel, said: EmbeddingsOptions) -> Layout:
    """Return what the manifest says of prompts, sizes and scaling: a GGUF file says nothing of them."""
    mode: Mode = "cls" if pooled.pooling.kind == "cls" else "last" if pooled.pooling.kind == "last" else "mean"
    sizes = tuple(said.matryoshka) if isinstance(said.matryoshka, list) else said.matryoshka is True
    steps = (("Normalize", ""),) if said.normalize else ()
    return Layout(pooling=(mode,), steps=steps, prompts=said.prompts, sizes=sizes)
