"""The classification head of a GGUF file with rank pooling, as a cross-encoder model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from functions.engines.batching.classifier import Logits
from functions.engines.batching.item import Item
from functions.engines.llama.model import gguf
from functions.engines.llama.model.native_library import lib
from functions.engines.llama.pooled import classifier_head
from functions.engines.llama.pooled.model import PooledModel
from functions.engines.llama.pooled.tokenizer import GgufTokenizer
from functions.rerank import score_mapping
from functions.rerank.options import RerankOptions
from functions.rerank.score_mapping import ScoreMapping
from functions.rerank.scorer import RelevanceScore
from host.errors import LoadFailed

_SOFTMAX = ("qwen3", "qwen3vl")
"""Architectures for which llama.cpp returns probabilities (softmax) instead of logits."""
_TINY = 1e-38


class GgufHead:
    """See `functions.rerank.cross_encoder.CrossEncoderModel`."""

    def __init__(self, model: PooledModel) -> None:
        self._model = model
        self.longest = model.longest
        self.architecture = model.model.metadata("general.architecture") or ""
        handle = model.model.handle
        names = [lib.llama_model_cls_label(handle, at) for at in range(lib.llama_model_n_cls_out(handle))]
        self.labels = tuple(name.decode("utf-8", "replace") if name else f"LABEL_{at}" for at, name in enumerate(names))
        """In the order of the logits: `classifier.output_labels`, as llama.cpp's converter writes them."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Empty: a GGUF file has no `config.json`."""
        return {}

    @property
    def tokenizer(self) -> GgufTokenizer:
        """The file's own tokenizer."""
        return self._model.tokenizer

    async def logits(self, items: Sequence[Item]) -> list[Logits]:
        """Return the head's outputs for each sequence."""
        return await self._model.rows(items)

    def detail(self) -> dict[str, Any]:
        """Return the labels and the model's description."""
        return {"labels": list(self.labels), "description": self._model.model.description()}

    def close(self) -> None:
        """End the threads and free the model."""
        self._model.close()


def check(architecture: str, path: Path) -> None:
    """Raise `LoadFailed` for a file with rank pooling that lacks weights of the head."""
    if not any(name.startswith("cls.") for name in gguf.read(path).tensors):
        raise LoadFailed(
            "this file has no head that scores pairs (no tensor cls or cls.output): if it embeds texts, "
            "options.method: cosine ranks by the cosine of its vectors"
        )
    classifier_head.check(architecture, path)


def mapping(head: GgufHead, options: RerankOptions) -> ScoreMapping:
    """Return the mapping of the head's outputs to scores; raises `LoadFailed` where no label means relevant."""
    if head.architecture not in _SOFTMAX or len(head.labels) == 1:
        return score_mapping.create(head.labels, options, None)
    at = score_mapping.relevant_label(head.labels, options.label)

    def from_probabilities(row: Sequence[float]) -> RelevanceScore:
        probability = row[at]
        return RelevanceScore(
            math.log(max(probability, _TINY)) - math.log(max(sum(row) - probability, _TINY)), probability
        )

    return from_probabilities
