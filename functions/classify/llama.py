"""Classifiers on llama.cpp: GGUF files with rank pooling and label names (`classifier.output_labels`).

GGUF files have no `problem_type`: several labels get a softmax unless the manifest sets `activation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from functions.classify.instance import ClassifyInstance
from functions.engines.batching.classifier import HeadKind, Logits
from functions.engines.batching.item import Encoding, Ids, Item, PairFrame
from functions.engines.llama.model.model import Model
from functions.engines.llama.model.native_library import lib
from functions.engines.llama.pooled import classifier_head
from functions.engines.llama.pooled import plan as planning
from functions.engines.llama.pooled.model import PooledModel
from functions.engines.llama.pooled.tokenizer import GgufTokenizer
from host.errors import LoadFailed
from host.function import Load, Plan, Progress


class _Tokenizer:
    """A GGUF file's tokenizer. It has no character offsets, which classification does not need."""

    def __init__(self, tokenizer: GgufTokenizer) -> None:
        self.vocabulary = tokenizer.vocabulary
        self.prefix, self.suffix = tokenizer.prefix, tokenizer.suffix
        self.pair: PairFrame = tokenizer.pair
        self.bare, self.frame, self.encode = tokenizer.bare, tokenizer.frame, tokenizer.encode

    def literal(self) -> None:
        """Do nothing: this tokenizer never reads text as special tokens."""

    async def pieces(self, texts: Sequence[str]) -> list[Encoding]:
        """Return each text's tokens without special ones."""
        head, tail = len(self.prefix), len(self.suffix)
        return [_without_offsets(ids[head : len(ids) - tail]) for ids in await self.encode(texts)]


class LlamaClassifierModel:
    """See `functions.engines.batching.classifier.ClassifierModel`."""

    def __init__(self, pooled: PooledModel, plan: Plan) -> None:
        """Raises `LoadFailed` for a file that names no labels."""
        self.labels = _labels(pooled.model)
        self.config: Mapping[str, Any] = {}
        self.longest = pooled.longest
        self.tokenizer = _Tokenizer(pooled.tokenizer)
        self._pooled = pooled
        self._device = plan.device

    @staticmethod
    def plan(load: Load) -> Plan:
        """Estimate the memory; raises `LoadFailed` for a file whose pooling is not rank."""
        return planning.make(load, "labels")

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress, head: HeadKind) -> Self:
        """Load vocabulary and weights; raises `LoadFailed`, also where a converter lost the head, and `OutOfMemory`."""
        pooled = PooledModel.load(load, plan, progress, "labels")
        try:
            classifier_head.check(pooled.model.metadata("general.architecture") or "", Path(load.path))
            return cls(pooled, plan)
        except BaseException:
            pooled.close()
            raise

    async def logits(self, items: Sequence[Item]) -> list[Logits]:
        """Return the logits of each item, in their order."""
        return await self._pooled.rows(items)

    def detail(self) -> dict[str, Any]:
        """Return what was chosen."""
        description = self._pooled.model.description()
        return {"labels": list(self.labels), "device": self._device, "description": description}

    def close(self) -> None:
        """End the threads and free the model."""
        self._pooled.close()


class LlamaClassifier(ClassifyInstance):
    """See `functions.classify.instance`."""

    engine = LlamaClassifierModel


def _labels(model: Model) -> tuple[str, ...]:
    named = [lib.llama_model_cls_label(model.handle, at) for at in range(lib.llama_model_n_cls_out(model.handle))]
    if not all(named):
        raise LoadFailed(
            "the file names no labels (classifier.output_labels), so its outputs have no meaning; "
            "if it ranks pairs of texts, its task is rerank"
        )
    return tuple(name.decode("utf-8", "replace") for name in named)


def _without_offsets(ids: Ids) -> Encoding:
    nowhere = np.full((len(ids), 2), -1, dtype=np.int32)
    return Encoding(ids=ids, spans=nowhere, words=nowhere[:, 0])
