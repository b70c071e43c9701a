"""Batches without padding: between a model's first layer and its last, all tokens of a batch lie on one axis.

Embeddings before and heads after it see the padded batch they are written for; linear layers see no padding, and
attention runs over each input by itself. It uses Transformers' own interface for attention, so it serves models that
do, and whether a model comes out the same is for `tuning` to check.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_layers import GradientCheckpointingLayer

_NAME = "coldframe_packed"


class Batch:
    """Where the tokens of a padded batch lie on the one axis."""

    def __init__(self, lengths: Sequence[int], mask: torch.Tensor) -> None:
        """`mask` is (items, tokens), 1 for tokens and 0 for padding on the right."""
        self.shape = tuple(mask.shape)
        self._index = mask.flatten().nonzero()[:, 0]
        self.groups = [(length, len(list(same))) for length, same in groupby(lengths)]
        """Inputs of one length, side by side: that length, and how many there are."""
        self.sizes = [length * count for length, count in self.groups]
        self._positions: dict[int, tuple[Any, tuple[torch.Tensor, torch.Tensor]]] = {}

    def pack(self, states: torch.Tensor) -> torch.Tensor:
        """Return (1, tokens, …) of (items, tokens, …)."""
        return states.flatten(0, 1).index_select(0, self._index).unsqueeze(0)

    def unpack(self, states: torch.Tensor) -> torch.Tensor:
        """Return (items, tokens, …) with zeros for padding."""
        count, longest = self.shape
        padded = states.new_zeros((count * longest, *states.shape[2:]))
        padded[self._index] = states[0]
        return padded.view(count, longest, *states.shape[2:])

    def rotary(self, pair: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines of (1 or items, tokens, …) on the one axis; layers that share them ask once."""
        key = id(pair[0])
        if key not in self._positions:
            cos, sin = (self.pack(part.expand(self.shape[0], *part.shape[1:])) for part in pair)
            self._positions[key] = pair, (cos, sin)  # the pair is kept, or its number could be another's
        return self._positions[key][1]


class _Now(threading.local):
    batch: Batch | None = None


_now = _Now()
"""The batch that this thread computes; None where it computes a padded one."""


@contextlib.contextmanager
def packed(batch: Batch) -> Iterator[None]:
    """Let models that are prepared for it compute this batch packed."""
    _now.batch = batch
    try:
        yield
    finally:
        _now.batch = None


def prepare(model: Any) -> bool:
    """Let the model compute packed batches; False for one that cannot, which stays as it is."""
    layers = _layers(model)
    if not layers or not getattr(model, "_supports_attention_backend", False):
        return False
    if getattr(model.config, "_attn_implementation", None) != "sdpa":
        return False
    AttentionInterface.register(_NAME, _attention)
    AttentionMaskInterface.register(_NAME, _mask)
    model.set_attn_implementation(_NAME)
    for layer in layers:
        layer.register_forward_pre_hook(_before, with_kwargs=True)
    layers[0].register_forward_pre_hook(_first, with_kwargs=True)
    layers[-1].register_forward_hook(_last)
    return True


def _layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers that one stack is made of; none where there are several stacks or something else."""
    stacks = [
        list(module)
        for module in model.modules()
        if isinstance(module, nn.ModuleList) and len(module) and isinstance(module[0], GradientCheckpointingLayer)
    ]
    return stacks[0] if len(stacks) == 1 else []


def _first(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if _now.batch is None:
        return args, kwargs
    if args:
        return (_now.batch.pack(args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": _now.batch.pack(kwargs["hidden_states"])}


def _before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    positions = kwargs.get("position_embeddings")
    if _now.batch is None or positions is None:
        return args, kwargs
    return args, {**kwargs, "position_embeddings": _now.batch.rotary(positions)}


def _last(layer: nn.Module, args: Any, output: Any) -> Any:
    if _now.batch is None:
        return output
    if isinstance(output, tuple):
        return (_now.batch.unpack(output[0]), *output[1:])
    return _now.batch.unpack(output)


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Return (1, tokens, heads, size) of three times (1, heads, tokens, size), each input by itself."""
    batch = _now.batch
    if batch is None:
        found: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return found
    three = (part.split(batch.sizes, dim=2) for part in (query, key, value))
    if attention_mask is None and getattr(module, "num_key_value_groups", 1) == 1 and _PLAIN.issuperset(kwargs):
        return _plainly(module, batch, three, kwargs.get("scaling"), kwargs.get("is_causal")), None
    parts = []
    for (length, count), group in zip(batch.groups, zip(*three, strict=True), strict=True):
        mask = None if attention_mask is None else attention_mask[..., :length, :length]
        apart = (_apart(part, length, count) for part in group)
        part, _ = sdpa_attention_forward(module, *apart, mask, **kwargs)
        parts.append(part.reshape(1, length * count, *part.shape[2:]))
    return torch.cat(parts, dim=1), None


_PLAIN = frozenset({"dropout", "scaling", "is_causal", "position_ids", "use_cache", "cache", "output_attentions"})
"""What an attention layer may say without its attention being any other than the plain one. Nothing is trained here."""


def _plainly(
    module: nn.Module,
    batch: Batch,
    three: Iterable[Sequence[torch.Tensor]],
    scale: float | None,
    causal: bool | None,
) -> torch.Tensor:
    """Return attention without a mask, by as little Python as can be: it runs for each input and layer."""
    causal = bool(getattr(module, "is_causal", True) if causal is None else causal)
    attend = torch.nn.functional.scaled_dot_product_attention
    parts = []
    for (length, count), group in zip(batch.groups, zip(*three, strict=True), strict=True):
        query, key, value = group if count == 1 else (_apart(part, length, count) for part in group)
        if count == 1 and query.dtype is torch.bfloat16 and _MULTIPLIED[0] <= length <= _MULTIPLIED[1] and not causal:
            parts.append(_multiplied(query[0], key[0], value[0], scale))
            continue
        part = attend(query, key, value, is_causal=causal and length > 1, scale=scale).transpose(1, 2)
        parts.append(part if count == 1 else part.flatten(0, 1).unsqueeze(0))
    return torch.cat(parts, dim=1)


_MULTIPLIED = (48, 512)
"""Tokens of inputs whose attention is faster as two products of matrices: torch's own on CPUs takes small steps, each
of them a call of the library that multiplies. Measured in bf16 on one core: 1.2 to 2 times."""


def _multiplied(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None) -> torch.Tensor:
    """Return (1, length, heads, size) of three times (heads, length, size)."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.baddbmm(query.new_zeros(1), query, key.transpose(1, 2), beta=0, alpha=scale)
    return torch.bmm(torch.softmax(scores, dim=-1), value).transpose(0, 1).unsqueeze(0)


def _apart(states: torch.Tensor, length: int, count: int) -> torch.Tensor:
    """Return (count, heads, length, size) of (1, heads, count * length, size), without copying."""
    return states[0].unflatten(1, (count, length)).transpose(0, 1)


def _mask(batch_size: int, attention_mask: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor | None:
    """Return the mask of a padded batch; of a packed one what is masked by position alone, for all inputs the same."""
    if _now.batch is None:
        found: torch.Tensor | None = sdpa_mask(batch_size=batch_size, attention_mask=attention_mask, **kwargs)
        return found
    shared: torch.Tensor | None = sdpa_mask(batch_size=1, attention_mask=None, **kwargs)
    return shared
