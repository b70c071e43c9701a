"""Pools token vectors: (items, tokens, hidden) and a mask to (items, size), in fp32."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from functions.engines.checkpoint.sentence.layout import Mode

_TINY = 1e-9


def pool(
    hidden: torch.Tensor, mask: torch.Tensor, modes: Sequence[Mode], prompts: Sequence[int] | None = None
) -> torch.Tensor:
    """Return the pooled vectors; several modes are concatenated.

    `mask` is 1 for tokens and 0 for padding on the right; `prompts` are the leading tokens of each item to leave out.
    """
    hidden = hidden.float()
    counted = mask
    if prompts is not None and any(prompts):
        starts = torch.tensor(prompts, device=mask.device).unsqueeze(1)
        counted = mask * (torch.arange(mask.shape[1], device=mask.device) >= starts)
    parts = [_one(hidden, mask, counted.unsqueeze(-1).float(), mode) for mode in modes]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _one(hidden: torch.Tensor, mask: torch.Tensor, counted: torch.Tensor, mode: Mode) -> torch.Tensor:
    rows = torch.arange(hidden.shape[0], device=hidden.device)
    if mode == "cls":
        return hidden[rows, counted.squeeze(-1).argmax(1)]  # behind a prompt that does not count, its first token
    if mode == "last":
        return hidden[rows, mask.sum(1) - 1]
    if mode == "max":
        return hidden.masked_fill(counted == 0, float("-inf")).amax(1)
    if mode == "weighted_mean":
        steps = torch.arange(1, hidden.shape[1] + 1, device=hidden.device, dtype=torch.float32)
        counted = counted * steps.view(1, -1, 1)
    total = (hidden * counted).sum(1)
    weight = counted.sum(1).clamp(min=_TINY)
    return total / (weight.sqrt() if mode == "mean_sqrt_len" else weight)
