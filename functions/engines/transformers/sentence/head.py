"""Applies a sentence model's head to token states: one dense vector, sparse weights, or a vector per token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from functions.engines.batching.item import Item
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence.layout import Layout, VectorKind
from functions.engines.checkpoint.sentence.output import SentenceItem, SentenceOutput, Vector
from functions.engines.checkpoint.sentence.sparse import Lexical, Splade
from functions.engines.transformers.sentence import layer_pooling, layers, sparse_pooling
from functions.engines.transformers.sentence.layer_pooling import States
from functions.engines.transformers.sentence.pooling import pool


class SentenceHead:
    """Turns the encoder's output into vectors, in fp32. `size` is the dense dimension."""

    def __init__(
        self,
        layout: Layout,
        folder: Folder,
        hidden: int,
        device: torch.device,
        special: Sequence[int] = (),
        states: States = layer_pooling.last,
    ) -> None:
        """`special` are the ids of special tokens, which get no sparse weight."""
        self._layout = layout
        self._states = states
        self._special = np.array(special, dtype=np.int32)
        self._layers, self.size = layers.load(layout.steps, folder, hidden * len(layout.pooling), device)
        self._tokens, self.token_size = (
            layers.load(layout.colbert.steps, folder, hidden, device) if layout.colbert is not None else ([], 0)
        )
        lexical = layout.sparse.file if isinstance(layout.sparse, Lexical) else None
        self._lexical = layers.load((("Linear", lexical),), folder, hidden, device)[0] if lexical else []

    def __call__(self, output: Any, mask: torch.Tensor, items: Sequence[Item]) -> list[SentenceOutput]:
        """Return each item's vectors, from the encoder's output and the mask, (items, tokens)."""
        found = [SentenceOutput() for _ in items]
        if isinstance(self._layout.sparse, Splade):
            for one, weights in zip(
                found, sparse_pooling.of_logits(output.logits, mask, self._layout.sparse), strict=True
            ):
                one.sparse = weights
            return found
        states = self._states(output)
        for kind, make in (("dense", self._dense), ("sparse", self._sparse), ("colbert", self._late)):
            rows = [row for row, item in enumerate(items) if kind in kinds(item)]
            if rows:
                made = make(states[rows], mask[rows], [items[row] for row in rows])
                for row, one in zip(rows, made, strict=True):
                    setattr(found[row], kind, one)
        return found

    def _dense(self, hidden: torch.Tensor, mask: torch.Tensor, items: Sequence[Item]) -> list[Any]:
        prompts = None if self._layout.with_prompt else [item.prompt for item in items]
        vectors = pool(hidden, mask, self._layout.pooling, prompts)
        for layer in self._layers:
            vectors = layer(vectors)
        return list(vectors.cpu().numpy())

    def _sparse(self, hidden: torch.Tensor, mask: torch.Tensor, items: Sequence[Item]) -> list[Any]:
        weights = hidden.float()
        for layer in self._lexical:
            weights = layer(weights)
        return list(sparse_pooling.of_tokens(weights.squeeze(-1), [item.ids for item in items], self._special))

    def _late(self, hidden: torch.Tensor, mask: torch.Tensor, items: Sequence[Item]) -> list[Any]:
        vectors = hidden.float()
        for layer in self._tokens:
            vectors = layer(vectors)
        rows = vectors.cpu().numpy()
        return [_output_mask(row[: len(item.ids)], item) for row, item in zip(rows, items, strict=True)]


def kinds(item: Item) -> tuple[VectorKind, ...]:
    """Return the kinds of vectors an item asks for; plain items get dense ones."""
    return item.kinds if isinstance(item, SentenceItem) else ("dense",)


def _output_mask(rows: Vector, item: Item) -> Vector:
    output_mask = item.output_mask if isinstance(item, SentenceItem) else None
    return rows.copy() if output_mask is None else rows[output_mask]
