"""Embeddings on torch: texts are tokenised, merged with everybody's into batches, encoded, pooled and cut to size."""

from __future__ import annotations

from typing import Self

import msgspec
import numpy as np

from functions.embeddings.api import EmbeddingsRequest, Vectors
from functions.embeddings.inputs import check, listed
from functions.embeddings.items import Items
from functions.embeddings.options import EmbeddingsOptions
from functions.engines.transformers.folder import Folder
from functions.engines.transformers.options import TransformersOptions
from functions.engines.transformers.sentence import layout as layouts
from functions.engines.transformers.sentence.layout import Layout
from functions.engines.transformers.sentence.model import SentenceModel, Vector
from host.function import Facts, Instance, Load, Plan, Progress, Usage

_CAPACITY = 256
"""Requests side by side; the batcher merges them, so more would only wait here instead of in the host."""


class TransformersEmbeddings(Instance):
    """A loaded encoder with its pooling."""

    def __init__(self, model: SentenceModel, items: Items) -> None:
        self._model = model
        self._items = items

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        return SentenceModel.plan(load, _layout(load))

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer, weights and head."""
        model = SentenceModel.load(load, plan, _layout(load), progress)
        truncate = _knobs(load).truncate
        items = Items(model.tokenizer, model.layout, longest=model.longest, truncate=truncate, size=model.size)
        return cls(model, items)

    async def answer(self, request: EmbeddingsRequest) -> Vectors:
        """Return a vector for each input. Raises `InvalidRequest`, and `InputTooLong` for what may not be cut."""
        check(request)
        size = self._items.dimension(request)
        items = await self._items.make(request, listed(request.input))
        vectors = await self._model.vectors(items)
        usage = Usage(prompt_tokens=sum(len(item.ids) for item in items))
        return Vectors(data=self._joined(vectors, size), dimension=size, usage=usage)

    def facts(self) -> Facts:
        """Return what was chosen, and by which file."""
        return Facts(capacity=_CAPACITY, context=self._model.longest, detail=self._model.detail())

    def close(self) -> None:
        """End both threads."""
        self._model.close()

    def _joined(self, vectors: list[Vector], size: int) -> bytes:
        """Return the vectors as little-endian float32, cut to `size` and scaled again when they were."""
        rows = np.stack(vectors)
        if size < rows.shape[1]:
            rows = rows[:, :size]
            if self._model.layout.normalizes:
                rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return rows.astype("<f4", copy=False).tobytes()


def _knobs(load: Load) -> EmbeddingsOptions:
    return msgspec.msgpack.decode(load.function_options, type=EmbeddingsOptions)


def _layout(load: Load) -> Layout:
    engine = msgspec.msgpack.decode(load.options, type=TransformersOptions)
    own = _knobs(load)
    said = layouts.Said(pooling=engine.pooling, normalize=own.normalize, matryoshka=own.matryoshka, prompts=own.prompts)
    return layouts.read(Folder(load.path), said)
