"""Pools token vectors: (items, tokens, hidden) and a mask to (items, size), in numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from functions.engines.checkpoint.sentence.layout import Mode
from functions.engines.onnx.encoder import Floats, Mask

_TINY = np.float32(1e-9)


def pool(hidden: Floats, mask: Mask, modes: Sequence[Mode], prompts: Sequence[int] | None = None) -> Floats:
    """Return the pooled vectors; several modes are concatenated.

    `mask` is 1 for tokens and 0 for padding on the right; `prompts` are the leading tokens of each item to leave out.
    """
    counted = mask
    if prompts is not None and any(prompts):
        counted = mask * (np.arange(mask.shape[1]) >= np.array(prompts)[:, None])
    return np.concatenate([_one(hidden, mask, counted.astype(np.float32), mode) for mode in modes], axis=1)


def _one(hidden: Floats, mask: Mask, counted: Floats, mode: Mode) -> Floats:
    if mode in ("cls", "last"):
        # Behind a prompt that does not count, the first token is the first that does.
        at = counted.argmax(1) if mode == "cls" else mask.sum(1) - 1
        chosen: Floats = hidden[np.arange(len(hidden)), at]
        return chosen
    if mode == "max":
        highest: Floats = np.where(counted[:, :, None] > 0, hidden, np.float32(-np.inf)).max(1)
        return highest
    if mode == "weighted_mean":
        counted = counted * np.arange(1, hidden.shape[1] + 1, dtype=np.float32)
    weight = np.maximum(counted.sum(1, keepdims=True), _TINY)
    # As a product of matrices, so that nothing as large as the token vectors is made on the way.
    total: Floats = np.matmul(counted[:, None, :], hidden)[:, 0]
    scaled: Floats = total / (np.sqrt(weight) if mode == "mean_sqrt_len" else weight)
    return scaled


def scale(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the vectors with length 1."""
    found: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32(1e-12))
    return found
