"""Sequence and token classification models on torch: items of all requests are batched, and each gets its logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec
import torch

from functions.engines.batching.batcher import Batcher
from functions.engines.batching.classifier import HeadKind, Logits
from functions.engines.batching.item import Item, size
from functions.engines.checkpoint import max_length, tokenizer
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.tokenizer import FastTokenizer
from functions.engines.transformers import encoder as encoders
from functions.engines.transformers import memory
from functions.engines.transformers import plan as planning
from functions.engines.transformers.encoder import Encoder
from functions.engines.transformers.options import TransformersOptions
from host.errors import NotFinite
from host.function import Load, Plan, Progress

_AUTO: dict[HeadKind, str] = {
    "sequence": "AutoModelForSequenceClassification",
    "token": "AutoModelForTokenClassification",
}


class TransformersClassifierModel:
    """Implements `functions.engines.batching.classifier.ClassifierModel`."""

    def __init__(
        self,
        plan: Plan,
        encoder: Encoder,
        tokens: FastTokenizer,
        options: TransformersOptions,
        config: Mapping[str, Any],
        head: HeadKind,
    ) -> None:
        self.tokenizer = tokens
        self.config = config
        self.longest = plan.context or 0
        self.labels = _labels(encoder.model.config.id2label)
        self._head = head
        self._encoder = encoder
        how = encoders.batcher_settings(options, plan, encoder)
        self._batcher: Batcher[Item, Logits] = Batcher(
            self._compute,
            size,
            **how,
            is_out_of_memory=memory.is_out_of_memory,
            release=memory.release,
        )

    @staticmethod
    def plan(load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        options, folder = _read(load)
        longest, bound = max_length.longest(
            folder.config(), folder.mapping("tokenizer_config.json"), load.manifest.context
        )
        plan = planning.encoder(load, options, folder, longest)
        return msgspec.structs.replace(plan, notes=(*plan.notes, f"inputs of up to {longest} tokens ({bound})"))

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress, head: HeadKind) -> Self:
        """Load tokenizer and weights; raises `LoadFailed`, also for a model without such a head, and `OutOfMemory`."""
        options, folder = _read(load)
        tokens = tokenizer.load(folder, load.threads, trusted=options.trust_remote_code)
        encoder = encoders.load(load, plan, options, folder, progress, auto=_AUTO[head], tokens=tokens)
        return cls(plan, encoder, tokens, options, folder.config(), head)

    async def logits(self, items: Sequence[Item]) -> list[Logits]:
        """Return the logits of each item, in their order."""
        return await self._batcher.run(items)

    def detail(self) -> dict[str, Any]:
        """Return what was chosen."""
        return {"labels": list(self.labels), **self._encoder.detail()}

    def close(self) -> None:
        """End both threads."""
        self._batcher.close()
        self.tokenizer.close()

    def _compute(self, items: Sequence[Item]) -> list[Logits]:
        """Return the logits of one batch; runs in the compute thread."""
        output, _ = self._encoder.forward(items)
        logits = output.logits.float()
        if not bool(torch.isfinite(logits).all()):
            raise NotFinite(f"the model gave numbers that are not finite in {self._encoder.precision}")
        rows = list(logits.cpu().numpy())
        if self._head == "sequence":
            return rows
        return [row[: len(item.ids)] for row, item in zip(rows, items, strict=True)]


def _labels(names: Mapping[Any, str]) -> tuple[str, ...]:
    return tuple(str(names[key]) for key in sorted(names, key=int))


def _read(load: Load) -> tuple[TransformersOptions, Folder]:
    return load.engine_options(TransformersOptions), Folder(load.path)
