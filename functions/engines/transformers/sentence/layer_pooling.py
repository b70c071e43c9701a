"""Selects the token states to pool: the last layer's, or a weighted mean of several (WeightedLayerPooling)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import safetensors.torch
import torch

from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence.layout import Layers
from host.errors import LoadFailed

States = Callable[[Any], torch.Tensor]
"""The model's output to (items, tokens, hidden)."""

_WEIGHTS = "layer_weights"


def last(output: Any) -> torch.Tensor:
    """Return the states behind the last layer."""
    found: torch.Tensor = output.last_hidden_state
    return found


def load(how: Layers | None, folder: Folder, count: int | None) -> States:
    """Return how token vectors are made, for a model of `count` layers where that is known.

    Raises `LoadFailed` for weights that are missing or are not as many as the layers.
    """
    if how is None:
        return last
    inner = folder.inside(how.path)
    (shard,) = inner.shards()
    weights = safetensors.torch.load_file(shard).get(_WEIGHTS)
    if weights is None or weights.dim() != 1:
        raise LoadFailed(f"{how.path}: model.safetensors has no {_WEIGHTS}")
    if count is not None and len(weights) != count + 1 - how.start:
        raise LoadFailed(
            f"{how.path} weighs {len(weights)} layers from {how.start} on, but the model has {count} behind its first"
        )
    shares = (weights.float() / weights.float().sum()).tolist()
    return lambda output: _mixed(output.hidden_states[how.start :], shares)


def _mixed(states: tuple[torch.Tensor, ...], shares: list[float]) -> torch.Tensor:
    mixed = torch.zeros_like(states[0], dtype=torch.float32)
    for state, share in zip(states, shares, strict=True):
        mixed.add_(state, alpha=share)
    return mixed
