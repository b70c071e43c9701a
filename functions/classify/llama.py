"""Classifiers on llama.cpp: a GGUF file with rank pooling that names what its numbers stand for.

A file says nothing of `problem_type`: several labels are taken to exclude each other unless `activation` says else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from functions.classify.instance import Classifier
from functions.engines.batching.classifier import HeadKind, Logits
from functions.engines.batching.item import Encoding, Ids, Item, PairFrame
from functions.engines.llama.model.library import lib
from functions.engines.llama.model.model import Model
from functions.engines.llama.pooled import classifier_head
from functions.engines.llama.pooled import plan as planning
from functions.engines.llama.pooled.model import PooledModel
from functions.engines.llama.pooled.tokenizer import GgufTokenizer
from host.errors import LoadFailed
from host.function import Load, Plan, Progress


class _Tokenizer:
    """A file's vocabulary, whose tokens have no places in the text: nobody here asks for them."""

    def __init__(self, words: GgufTokenizer) -> None:
        self._words = words
        self.vocabulary = words.vocabulary
        self.prefix, self.suffix = words.prefix, words.suffix
        self.pair: PairFrame = words.pair
        self.bare, self.frame, self.encode = words.bare, words.frame, words.encode

    def literal(self) -> None:
        """Do nothing: what is spelled like a special token is always read as the words that it is."""

    async def pieces(self, texts: Sequence[str]) -> list[Encoding]:
        """Return each text's tokens without special ones."""
        head, tail = len(self.prefix), len(self.suffix)
        return [_unplaced(ids[head : len(ids) - tail]) for ids in await self.encode(texts)]


class LlamaHeaded:
    """See `functions.engines.batching.classifier.ClassifierModel`."""

    def __init__(self, pooled: PooledModel, plan: Plan) -> None:
        """Raises `LoadFailed` for a file that names no labels."""
        self.labels = _labels(pooled.model)
        self.config: Mapping[str, Any] = {}
        self.longest = pooled.longest
        self.tokenizer = _Tokenizer(pooled.words)
        self._pooled = pooled
        self._device = plan.device

    @staticmethod
    def plan(load: Load) -> Plan:
        """Weigh the file; raises `LoadFailed` for one that pools vectors and no ranks."""
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


class LlamaClassifier(Classifier):
    """See `functions.classify.instance`."""

    engine = LlamaHeaded


def _labels(model: Model) -> tuple[str, ...]:
    named = [lib.llama_model_cls_label(model.handle, at) for at in range(lib.llama_model_n_cls_out(model.handle))]
    if not all(named):
        raise LoadFailed(
            "the file names no labels (classifier.output_labels), so nobody can tell what its numbers stand for; "
            "if it ranks pairs of texts, its task is rerank"
        )
    return tuple(name.decode("utf-8", "replace") for name in named)


def _unplaced(ids: Ids) -> Encoding:
    nowhere = np.full((len(ids), 2), -1, dtype=np.int32)
    return Encoding(ids=ids, spans=nowhere, words=nowhere[:, 0])
