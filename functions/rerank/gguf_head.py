"""A GGUF file's ranks as the logits of a head, and what they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from functions.engines.batching.classifier import Logits
from functions.engines.batching.item import Item
from functions.engines.llama.model import gguf
from functions.engines.llama.model.library import lib
from functions.engines.llama.pooled import classifier_head
from functions.engines.llama.pooled.model import PooledModel
from functions.engines.llama.pooled.tokenizer import GgufTokenizer
from functions.rerank import score_mapping
from functions.rerank.options import RerankOptions
from functions.rerank.score_mapping import Judge
from functions.rerank.scorer import Mark
from host.errors import LoadFailed

_SHARED = ("qwen3", "qwen3vl")
"""Architectures whose ranks llama.cpp puts through a softmax itself."""
_TINY = 1e-38


class GgufHead:
    """A pooled model as `functions.rerank.cross_encoder.Head`."""

    def __init__(self, model: PooledModel) -> None:
        self._model = model
        self.longest = model.longest
        self.architecture = model.model.metadata("general.architecture") or ""
        handle = model.model.handle
        names = [lib.llama_model_cls_label(handle, at) for at in range(lib.llama_model_n_cls_out(handle))]
        self.labels = tuple(name.decode("utf-8", "replace") if name else f"LABEL_{at}" for at, name in enumerate(names))
        """In the order of the numbers of a rank, as llama.cpp's converter writes `classifier.output_labels`."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Nothing that is not in the file itself."""
        return {}

    @property
    def tokenizer(self) -> GgufTokenizer:
        """The file's own."""
        return self._model.tokenizer

    async def logits(self, items: Sequence[Item]) -> list[Logits]:
        """Return the numbers of each item's rank."""
        return await self._model.rows(items)

    def detail(self) -> dict[str, Any]:
        """Return what was chosen."""
        return {"labels": list(self.labels), "description": self._model.model.description()}

    def close(self) -> None:
        """End the threads and free the model."""
        self._model.close()


def check(architecture: str, path: Path) -> None:
    """Raise `LoadFailed` for a file that names rank as its pooling and lacks weights of the head that gives it."""
    if not any(name.startswith("cls.") for name in gguf.read(path).tensors):
        raise LoadFailed(
            "this file has no head that scores pairs (no tensor cls or cls.output): if it embeds texts, "
            "options.method: cosine ranks by the cosine of its vectors"
        )
    classifier_head.check(architecture, path)


def judge(ranks: GgufHead, own: RerankOptions) -> Judge:
    """Return what turns a rank into a mark; raises `LoadFailed` for labels that say nothing."""
    if ranks.architecture not in _SHARED or len(ranks.labels) == 1:
        return score_mapping.judge(ranks.labels, own, None)
    at = score_mapping.relevant(ranks.labels, own.label)

    def share(row: Sequence[float]) -> Mark:
        chance = row[at]
        return Mark(math.log(max(chance, _TINY)) - math.log(max(sum(row) - chance, _TINY)), chance)

    return share
