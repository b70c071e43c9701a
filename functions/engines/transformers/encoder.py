"""A loaded encoder: tokenised items in, padded tensors through the model, its output and the mask out.

It pads and runs; what becomes of the output (pooling, a head's scores, labels) is the task's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from functions.engines.batching.item import Item
from functions.engines.transformers import device as devices
from functions.engines.transformers import plan as planning
from functions.engines.transformers import precision, weights
from functions.engines.transformers.folder import Folder
from functions.engines.transformers.options import TransformersOptions
from host.errors import LoadFailed
from host.function import Load, Plan, Progress


class Encoder:
    """Weights on a device. Its methods run in the compute thread only."""

    def __init__(self, model: Any, device: torch.device, dtype: torch.dtype, pad: int) -> None:
        self.model = model
        self.device = device
        self.dtype = dtype
        self._pad = pad
        self._typed = "token_type_ids" in inspect.signature(model.forward).parameters

    def forward(self, items: Sequence[Item]) -> tuple[Any, torch.Tensor]:
        """Return the model's output and the mask, (items, tokens) of 0 and 1; padding is on the right."""
        ids, mask, types = self._padded(items)
        given = {"token_type_ids": types} if types is not None else {}
        with torch.inference_mode():
            return self.model(input_ids=ids, attention_mask=mask, **given), mask

    def _padded(self, items: Sequence[Item]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        shape = (len(items), max(len(item.ids) for item in items))
        ids = torch.full(shape, self._pad, dtype=torch.long)
        mask = torch.zeros(shape, dtype=torch.long)
        typed = self._typed and any(item.types is not None for item in items)
        types = torch.zeros(shape, dtype=torch.long) if typed else None
        for row, item in enumerate(items):
            count = len(item.ids)
            ids[row, :count] = torch.from_numpy(item.ids)
            mask[row, :count] = 1
            if types is not None and item.types is not None:
                types[row, :count] = torch.from_numpy(item.types)
        return ids.to(self.device), mask.to(self.device), types if types is None else types.to(self.device)


def load(
    load_: Load,
    plan: Plan,
    options: TransformersOptions,
    folder: Folder,
    progress: Progress,
    auto: str = weights.AUTO,
) -> Encoder:
    """Load the model that the plan is for, without a head or as Transformers' auto class `auto` makes it.

    Raises what `weights.load` raises.
    """
    device = devices.choose(load_.manifest.device)
    config = folder.config()
    dtype = precision.choose(load_.manifest.quantization, device, config.get("dtype") or config.get("torch_dtype"))
    torch.set_num_threads(load_.threads)
    model = weights.load(
        folder,
        device=device,
        dtype=dtype,
        auto=auto,
        attention=options.attention,
        progress=progress,
        spare=lambda name: auto == weights.AUTO and name.startswith("pooler."),
    )
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False  # nothing is generated, so keys and values need not outlive their layer
    _check_positions(model, plan.context or 0)
    pad = getattr(model.config, "pad_token_id", None)
    return Encoder(model, device, dtype, 0 if pad is None else int(pad))


def budget(options: TransformersOptions, plan: Plan, device: torch.device) -> tuple[int, int]:
    """Return a batcher's token budget and overhead, as planned."""
    tokens = plan.detail.get("batch_tokens")
    return int(tokens or planning.batch_tokens(options, device)), planning.overhead(device)


def _check_positions(model: Any, longest: int) -> None:
    """Raise when inputs as long as planned would run past the position embeddings as they really are."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            if longest > module.num_embeddings - first:
                served = module.num_embeddings - first
                raise LoadFailed(
                    f"inputs of {longest} tokens were planned, but the positions serve {served}: set context"
                )
