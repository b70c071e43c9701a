"""Embeddings on llama.cpp: texts are tokenised, merged with everybody's into batches, pooled, scaled, cut to size."""

from __future__ import annotations

from typing import Any, Self

import msgspec
import numpy as np

from functions.embeddings.api import EmbeddingsRequest, Vectors
from functions.embeddings.inputs import check, listed
from functions.embeddings.items import Items
from functions.embeddings.options import EmbeddingsOptions
from functions.engines.llama.pooled import plan as planning
from functions.engines.llama.pooled.model import PooledModel, Row
from functions.engines.transformers.sentence.layout import Layout, Mode
from host.function import Facts, Instance, Load, Plan, Progress, Usage

_CAPACITY = 256
"""Requests side by side; the batcher merges them, so more would only wait here instead of in the host."""
_TINY = 1e-12


class LlamaEmbeddings(Instance):
    """A GGUF file that embeds."""

    def __init__(self, plan: Plan, pooled: PooledModel, knobs: EmbeddingsOptions) -> None:
        self._plan = plan
        self._pooled = pooled
        self._layout = _layout(pooled, knobs)
        self._normalize = bool(knobs.normalize)
        self._items = Items(
            pooled.words, self._layout, longest=pooled.longest, truncate=knobs.truncate, size=pooled.size
        )

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Weigh the file; raises `LoadFailed` for one that embeds nothing."""
        plan = planning.make(load, "vectors")
        knobs = msgspec.msgpack.decode(load.function_options, type=EmbeddingsOptions)
        return msgspec.structs.replace(
            plan, notes=(*plan.notes, "scaled to length 1" if knobs.normalize else "not scaled")
        )

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load vocabulary and weights."""
        knobs = msgspec.msgpack.decode(load.function_options, type=EmbeddingsOptions)
        return cls(plan, PooledModel.load(load, plan, progress, "vectors"), knobs)

    async def answer(self, request: EmbeddingsRequest) -> Vectors:
        """Return a vector for each input. Raises `InvalidRequest`, and `InputTooLong` for what may not be cut."""
        check(request)
        size = self._items.dimension(request)
        items = await self._items.make(request, listed(request.input))
        vectors = await self._pooled.rows(items)
        usage = Usage(prompt_tokens=sum(len(item.ids) for item in items))
        return Vectors(data=self._joined(vectors, size), dimension=size, usage=usage)

    def facts(self) -> Facts:
        """Return what was chosen."""
        detail: dict[str, Any] = {
            "dimension": self._pooled.size,
            "dimensions": list(self._layout.sizes) if isinstance(self._layout.sizes, tuple) else self._layout.sizes,
            "pooling": [self._pooled.pooling.kind],
            "normalized": self._normalize,
            "prompts": sorted(self._layout.prompts),
            "device": self._plan.device,
            "description": self._pooled.model.description(),
        }
        return Facts(capacity=_CAPACITY, context=self._pooled.longest, detail=detail)

    def close(self) -> None:
        """End the threads and free the model."""
        self._pooled.close()

    def _joined(self, vectors: list[Row], size: int) -> bytes:
        """Return the vectors as little-endian float32, cut to `size` and scaled."""
        rows = np.stack(vectors)[:, :size]
        if self._normalize:
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY)
        return rows.astype("<f4", copy=False).tobytes()


def _layout(pooled: PooledModel, knobs: EmbeddingsOptions) -> Layout:
    """Return what the manifest says of prompts and sizes: a GGUF file says nothing of them."""
    mode: Mode = "cls" if pooled.pooling.kind == "cls" else "last" if pooled.pooling.kind == "last" else "mean"
    sizes = tuple(knobs.matryoshka) if isinstance(knobs.matryoshka, list) else knobs.matryoshka is True
    return Layout(pooling=(mode,), prompts=knobs.prompts, sizes=sizes)
