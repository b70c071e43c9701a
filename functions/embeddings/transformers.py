"""Embeddings on torch: texts are tokenised, merged with everybody's into batches, encoded, pooled and cut to size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from functions.embeddings import layout as layouts
from functions.embeddings.api import EmbeddingsRequest, Vectors
from functions.embeddings.head import Head
from functions.embeddings.inputs import check, listed
from functions.embeddings.items import Items
from functions.embeddings.layout import Layout
from functions.engines.batching.batcher import Batcher
from functions.engines.batching.item import Item, size
from functions.engines.transformers import encoder as encoders
from functions.engines.transformers import limits, memory, tokenizer
from functions.engines.transformers import plan as planning
from functions.engines.transformers.encoder import Encoder
from functions.engines.transformers.folder import Folder
from functions.engines.transformers.options import TransformersOptions
from host.errors import ColdframeError, LoadFailed
from host.function import Facts, Instance, Load, Plan, Progress, Usage

_CAPACITY = 256
"""Requests side by side; the batcher merges them, so more would only wait here instead of in the host."""

Vector = npt.NDArray[np.float32]


class TransformersEmbeddings(Instance):
    """A loaded encoder with its pooling."""

    def __init__(
        self, plan: Plan, layout: Layout, encoder: Encoder, head: Head, items: Items, knobs: TransformersOptions
    ) -> None:
        self._plan = plan
        self._layout = layout
        self._encoder = encoder
        self._head = head
        self._items = items
        tokens, overhead = encoders.budget(knobs, plan, encoder.device)
        self._batcher: Batcher[Item, Vector] = Batcher(
            self._compute, size, budget=tokens, overhead=overhead, ran_out=memory.ran_out, release=memory.release
        )

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        knobs, folder, layout = _read(load)
        model = folder.inside(layout.encoder)
        longest, bound = limits.longest(
            model.config(), model.mapping("tokenizer_config.json"), load.manifest.context, layout.longest
        )
        plan = planning.encoder(load, knobs, model, longest)
        notes = (*plan.notes, f"inputs of up to {longest} tokens ({bound})", *layout.notes)
        return msgspec.structs.replace(plan, notes=notes)

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer, weights and head."""
        knobs, folder, layout = _read(load)
        model = folder.inside(layout.encoder)
        tokens = tokenizer.load(model, load.threads, lower=layout.lower)
        encoder = encoders.load(load, plan, knobs, model, progress)
        hidden = getattr(encoder.model.config, "hidden_size", None)
        if not isinstance(hidden, int):
            raise LoadFailed(f"{type(encoder.model).__name__} gives no vector for each token: it cannot embed texts")
        head = Head(layout, folder, hidden, encoder.device)
        items = Items(tokens, layout, longest=plan.context or 0, truncate=knobs.truncate, size=head.size)
        return cls(plan, layout, encoder, head, items, knobs)

    async def answer(self, request: EmbeddingsRequest) -> Vectors:
        """Return a vector for each input. Raises `InvalidRequest`, and `InputTooLong` for what may not be cut."""
        check(request)
        size = self._items.dimension(request)
        items = await self._items.make(request, listed(request.input))
        vectors = await self._batcher.run(items)
        usage = Usage(prompt_tokens=sum(len(item.ids) for item in items))
        return Vectors(data=self._joined(vectors, size), dimension=size, usage=usage)

    def facts(self) -> Facts:
        """Return what was chosen, and by which file."""
        detail: dict[str, Any] = {
            "dimension": self._layout.size or self._head.size,
            "dimensions": list(self._layout.sizes) if isinstance(self._layout.sizes, tuple) else self._layout.sizes,
            "pooling": list(self._layout.pooling),
            "normalized": self._layout.normalizes,
            "prompts": sorted(self._layout.prompts),
            "dtype": self._plan.detail.get("dtype"),
            "device": self._plan.device,
            "architecture": type(self._encoder.model).__name__,
        }
        return Facts(capacity=_CAPACITY, context=self._plan.context, detail=detail)

    def close(self) -> None:
        """End both threads."""
        self._batcher.close()
        self._items.close()

    def _compute(self, items: Sequence[Item]) -> list[Vector]:
        """Return the vectors of one batch; runs in the compute thread."""
        output, mask = self._encoder.forward(items)
        with torch.inference_mode():
            found = self._head(output.last_hidden_state, mask, [item.prompt for item in items])
            if not bool(torch.isfinite(found).all()):
                raise ColdframeError(f"the model gave numbers that are not finite in {self._plan.detail.get('dtype')}")
        return list(found.cpu().numpy())

    def _joined(self, vectors: list[Vector], size: int) -> bytes:
        """Return the vectors as little-endian float32, cut to `size` and scaled again when they were."""
        rows = np.stack(vectors)
        if size < rows.shape[1]:
            rows = rows[:, :size]
            if self._layout.normalizes:
                rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return rows.astype("<f4", copy=False).tobytes()


def _read(load: Load) -> tuple[TransformersOptions, Folder, Layout]:
    knobs = msgspec.msgpack.decode(load.options, type=TransformersOptions)
    folder = Folder(load.path)
    return knobs, folder, layouts.read(folder, knobs)
