"""Runs batches without padding (unpadding, varlen): between the first and last layer all tokens lie on one axis.

Embeddings and heads still see the padded batch; attention runs over each input by itself, through Transformers'
attention interface. `optimize` checks that a model's output is unchanged."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_layers import GradientCheckpointingLayer

_NAME = "coldframe_packed"


_STEP = 16
"""Attention lengths are rounded up to a multiple of this: oneDNN compiles a kernel for each new size, which costs more
than one computation with it."""


def _rounded(tokens: int) -> int:
    """Return the rows that so many tokens are computed in: few numbers differ, by a sixteenth or 7 at most."""
    step = max(8, 1 << max(tokens.bit_length() - 5, 0))
    return -(-tokens // step) * step


def padded_length(length: int) -> int:
    """Return the length an input's attention is computed with."""
    return -(-length // _STEP) * _STEP


class Batch:
    """Where the tokens of a padded batch lie on the one axis; rows behind the last make the number round."""

    def __init__(self, lengths: Sequence[int], mask: torch.Tensor) -> None:
        """`mask` is (items, tokens), 1 for tokens and 0 for padding on the right."""
        self.shape = tuple(mask.shape)
        self.tokens = sum(lengths)
        self.rows = _rounded(self.tokens - lengths[-1] + padded_length(lengths[-1]))
        self._index = mask.flatten().nonzero()[:, 0]
        self._selected = torch.nn.functional.pad(self._index, (0, self.rows - self.tokens))
        self.groups = [(length, len(list(same))) for length, same in groupby(lengths)]
        """Inputs of one length, side by side: that length, and how many there are."""
        self.sizes = [length * count for length, count in self.groups]
        self._masks: dict[int, torch.Tensor] = {}
        self._positions: dict[int, tuple[Any, tuple[torch.Tensor, torch.Tensor]]] = {}

    def pack(self, states: torch.Tensor) -> torch.Tensor:
        """Return (1, rows, …) of (items, tokens, …)."""
        return states.flatten(0, 1).index_select(0, self._selected).unsqueeze(0)

    def unpack(self, states: torch.Tensor) -> torch.Tensor:
        """Return (items, tokens, …) with zeros for padding."""
        count, longest = self.shape
        padded = states.new_zeros((count * longest, *states.shape[2:]))
        padded[self._index] = states[0, : self.tokens]
        return padded.view(count, longest, *states.shape[2:])

    def concatenate(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Return (1, rows, …) of the groups' (tokens, …)."""
        behind = self.rows - self.tokens
        if behind:
            parts.append(parts[0].new_zeros((behind, *parts[0].shape[1:])))
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).unsqueeze(0)

    def mask(self, length: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
        """Return the additive mask of an input computed with `padded_length` tokens; None where that is its length."""
        if length == padded_length(length):
            return None
        if length not in self._masks:
            made = torch.zeros(padded_length(length), dtype=dtype, device=device)
            made[length:] = float("-inf")
            self._masks[length] = made.view(1, 1, 1, -1)
        return self._masks[length]

    def rotary(self, pair: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines of (1 or items, tokens, …) on the one axis; layers that share them ask once."""
        key = id(pair[0])
        if key not in self._positions:
            cos, sin = (self.pack(part.expand(self.shape[0], *part.shape[1:])) for part in pair)
            self._positions[key] = pair, (cos, sin)  # the pair is kept, or its number could be another's
        return self._positions[key][1]


class _Current(threading.local):
    batch: Batch | None = None


_current = _Current()
"""The batch that this thread computes; None where it computes a padded one."""


@contextlib.contextmanager
def packed(batch: Batch) -> Iterator[None]:
    """Make prepared models compute this batch packed, in this thread and context."""
    _current.batch = batch
    try:
        yield
    finally:
        _current.batch = None


def prepare(model: Any) -> bool:
    """Hook the model for packed batches; False for one that does not support it, which stays unchanged."""
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
    if _current.batch is None:
        return args, kwargs
    if args:
        return (_current.batch.pack(args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": _current.batch.pack(kwargs["hidden_states"])}


def _before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    positions = kwargs.get("position_embeddings")
    if _current.batch is None or positions is None:
        return args, kwargs
    return args, {**kwargs, "position_embeddings": _current.batch.rotary(positions)}


def _last(layer: nn.Module, args: Any, output: Any) -> Any:
    if _current.batch is None:
        return output
    if isinstance(output, tuple):
        return (_current.batch.unpack(output[0]), *output[1:])
    return _current.batch.unpack(output)


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Return (1, tokens, heads, size) of three times (1, heads, tokens, size), each input by itself."""
    batch = _current.batch
    if batch is None:
        found: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return found
    arguments = {name for name, value in kwargs.items() if value is not None}
    if attention_mask is None and getattr(module, "num_key_value_groups", 1) == 1 and arguments <= _PLAIN_ARGUMENTS:
        return _plain_attention(
            module, batch, (query, key, value), kwargs.get("scaling"), kwargs.get("is_causal")
        ), None
    parts = []
    three = (part[:, :, : batch.tokens].split(batch.sizes, dim=2) for part in (query, key, value))
    for (length, count), group in zip(batch.groups, zip(*three, strict=True), strict=True):
        mask = None if attention_mask is None else attention_mask[..., :length, :length]
        apart = (_split_inputs(part, length, count) for part in group)
        part, _ = sdpa_attention_forward(module, *apart, mask, **kwargs)
        parts.append(part.flatten(0, 1))
    return batch.concatenate(parts), None


_PLAIN_ARGUMENTS = frozenset(
    {"dropout", "scaling", "is_causal", "position_ids", "use_cache", "cache", "output_attentions", "deterministic"}
)
"""Keyword arguments of attention layers that leave it plain scaled dot-product attention in inference."""


def _plain_attention(
    module: nn.Module,
    batch: Batch,
    three: Sequence[torch.Tensor],
    scale: float | None,
    causal: bool | None,
) -> torch.Tensor:
    """Return attention without a mask, by as little Python as can be: it runs for each input and layer.

    Inputs reach into what lies behind them, to a multiple of tokens: that is masked, and dropped from what comes out.
    """
    causal = bool(getattr(module, "is_causal", True) if causal is None else causal)
    scale = three[0].shape[-1] ** -0.5 if scale is None else scale
    products = not causal and three[0].dtype is torch.bfloat16 and not _has_amx()
    parts, start = [], 0
    for length, count in batch.groups:
        query, key, value = (_windows(part, start, length, count) for part in three)
        mask = None if causal else batch.mask(length, query.dtype, query.device)
        if products and _MATMUL_LENGTHS[0] <= length <= _MATMUL_LENGTHS[1]:
            part = _matmul_attention(query, key, value, mask, scale)
        else:
            part = _sdpa(query, key, value, mask, is_causal=causal, scale=scale)
        parts.append(part.transpose(1, 2)[:, :length].flatten(0, 1))
        start += length * count
    return batch.concatenate(parts)


_sdpa = torch.nn.functional.scaled_dot_product_attention

_MATMUL_LENGTHS = (48, 512)
"""Tokens of inputs whose attention is faster as two products of matrices, where the processor has no tiles: torch's own
takes small steps there, each of them a call of the library that multiplies. Measured in bf16 on one core: 1.2 to 2
times with AVX-512 alone, and half as fast with AMX."""


@functools.cache
def _has_amx() -> bool:
    return bool(torch.cpu.get_capabilities().get("amx_bf16"))


def _matmul_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """Return (count, heads, length, size) of three times the same."""
    shape = query.shape
    query, key, value = (part.flatten(0, 1) for part in (query, key, value))
    added = query.new_zeros(1) if mask is None else mask[0]
    scores = torch.baddbmm(added, query, key.transpose(1, 2), alpha=scale)
    return torch.bmm(torch.softmax(scores, dim=-1), value).view(shape)


def _windows(states: torch.Tensor, start: int, length: int, count: int) -> torch.Tensor:
    """Return overlapping views (count, heads, padded length, size) into (1, heads, rows, size), without copying."""
    _, heads, _, size = states.shape
    _, head, row, number = states.stride()
    shape, strides = (count, heads, padded_length(length), size), (length * row, head, row, number)
    return states.as_strided(shape, strides, states.storage_offset() + start * row)


def _split_inputs(states: torch.Tensor, length: int, count: int) -> torch.Tensor:
    """Return (count, heads, length, size) of (1, heads, count * length, size), without copying."""
    return states[0].unflatten(1, (count, length)).transpose(0, 1)


def _mask(batch_size: int, attention_mask: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor | None:
    """Return the mask of a padded batch; of a packed one what is masked by position alone, for all inputs the same."""
    if _current.batch is None:
        found: torch.Tensor | None = sdpa_mask(batch_size=batch_size, attention_mask=attention_mask, **kwargs)
        return found
    shared: torch.Tensor | None = sdpa_mask(batch_size=1, attention_mask=None, **kwargs)
    return shared
