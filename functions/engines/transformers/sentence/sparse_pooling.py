"""Pools logits (SPLADE) or token weights (BGE-M3) into sparse vectors of the vocabulary, in fp32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from functions.engines.batching.item import Ids
from functions.engines.checkpoint.sentence.output import Weights
from functions.engines.checkpoint.sentence.sparse import Splade


def of_logits(logits: torch.Tensor, mask: torch.Tensor, how: Splade) -> list[Weights]:
    """Return the weights of each input from (items, tokens, vocabulary) of logits."""
    weights = (logits.float() * mask.unsqueeze(-1)).relu_().log1p_()
    if how.double_log:
        weights = weights.log1p_()
    pooled = weights.amax(1) if how.pooling == "max" else weights.sum(1)
    return [top_weights(row, how.top_k) for row in pooled.cpu().numpy()]


def of_tokens(weights: torch.Tensor, ids: Sequence[Ids], special: npt.NDArray[np.int32]) -> list[Weights]:
    """Return each input's weights from (items, tokens); a token that occurs several times gets its largest weight."""
    rows = weights.float().relu().cpu().numpy()
    found: list[Weights] = []
    for row, tokens in zip(rows, ids, strict=True):
        words, places = np.unique(tokens, return_inverse=True)
        heaviest = np.zeros(len(words), dtype=np.float32)
        np.maximum.at(heaviest, places, row[: len(tokens)])
        kept = (heaviest > 0) & ~np.isin(words, special)
        found.append((words[kept].astype(np.int32), heaviest[kept]))
    return found


def top_weights(row: npt.NDArray[np.float32], top_k: int | None) -> Weights:
    """Return the non-zero weights of a vocabulary-sized row, only the `top_k` largest unless that is None."""
    ids = np.flatnonzero(row).astype(np.int32)
    if top_k is not None and len(ids) > top_k:
        ids = np.sort(ids[np.argsort(-row[ids], kind="stable")[:top_k]])
    return ids, row[ids]
