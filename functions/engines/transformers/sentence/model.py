"""A loaded model that turns texts into vectors: everybody's items are merged into batches, encoded and pooled.

It knows items and vectors; prompts, sizes and what is asked of them are the task's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from functions.engines.batching.batcher import Batcher
from functions.engines.batching.item import Item, size
from functions.engines.transformers import encoder as encoders
from functions.engines.transformers import limits, memory, tokenizer
from functions.engines.transformers import plan as planning
from functions.engines.transformers.encoder import Encoder
from functions.engines.transformers.folder import Folder
from functions.engines.transformers.options import TransformersOptions
from functions.engines.transformers.sentence.head import Head
from functions.engines.transformers.sentence.layout import Layout
from functions.engines.transformers.tokenizer import Tokenizer
from host.errors import ColdframeError, LoadFailed
from host.function import Load, Plan, Progress

Vector = npt.NDArray[np.float32]


class SentenceModel:
    """An encoder with its pooling. `size` is a vector's numbers, `longest` an input's tokens, special ones included."""

    def __init__(
        self, plan: Plan, layout: Layout, encoder: Encoder, head: Head, tokens: Tokenizer, knobs: TransformersOptions
    ) -> None:
        self.layout = layout
        self.tokenizer = tokens
        self.size = head.size
        self.longest = plan.context or 0
        self.dtype = plan.detail.get("dtype")
        self._encoder = encoder
        self._head = head
        budget, overhead = encoders.budget(knobs, plan, encoder.device)
        self._batcher: Batcher[Item, Vector] = Batcher(
            self._compute, size, budget=budget, overhead=overhead, ran_out=memory.ran_out, release=memory.release
        )

    @staticmethod
    def plan(load: Load, layout: Layout) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        knobs, model = _read(load, layout)
        longest, bound = limits.longest(
            model.config(), model.mapping("tokenizer_config.json"), load.manifest.context, layout.longest
        )
        plan = planning.encoder(load, knobs, model, longest)
        notes = (*plan.notes, f"inputs of up to {longest} tokens ({bound})", *layout.notes)
        return msgspec.structs.replace(plan, notes=notes)

    @classmethod
    def load(cls, load: Load, plan: Plan, layout: Layout, progress: Progress) -> Self:
        """Load tokenizer, weights and head; raises `LoadFailed` and `OutOfMemory`."""
        knobs, model = _read(load, layout)
        tokens = tokenizer.load(model, load.threads, lower=layout.lower)
        encoder = encoders.load(load, plan, knobs, model, progress)
        hidden = getattr(encoder.model.config, "hidden_size", None)
        if not isinstance(hidden, int):
            raise LoadFailed(f"{type(encoder.model).__name__} gives no vector for each token: it cannot embed texts")
        head = Head(layout, Folder(load.path), hidden, encoder.device)
        return cls(plan, layout, encoder, head, tokens, knobs)

    async def vectors(self, items: Sequence[Item]) -> list[Vector]:
        """Return the vector of each item, in their order; raises `QueueFull`, `ShuttingDown`, `OutOfMemory`."""
        return await self._batcher.run(items)

    def detail(self) -> dict[str, Any]:
        """Return what was chosen, and by which file."""
        layout = self.layout
        return {
            "dimension": layout.size or self.size,
            "dimensions": list(layout.sizes) if isinstance(layout.sizes, tuple) else layout.sizes,
            "pooling": list(layout.pooling),
            "normalized": layout.normalizes,
            "prompts": sorted(layout.prompts),
            "dtype": self.dtype,
            "device": str(self._encoder.device),
            "architecture": type(self._encoder.model).__name__,
        }

    def close(self) -> None:
        """End both threads."""
        self._batcher.close()
        self.tokenizer.close()

    def _compute(self, items: Sequence[Item]) -> list[Vector]:
        """Return the vectors of one batch; runs in the compute thread."""
        output, mask = self._encoder.forward(items)
        with torch.inference_mode():
            found = self._head(output.last_hidden_state, mask, [item.prompt for item in items])
            if not bool(torch.isfinite(found).all()):
                raise ColdframeError(f"the model gave numbers that are not finite in {self.dtype}")
        return list(found.cpu().numpy())


def _read(load: Load, layout: Layout) -> tuple[TransformersOptions, Folder]:
    knobs = msgspec.msgpack.decode(load.options, type=TransformersOptions)
    return knobs, Folder(load.path).inside(layout.encoder)
