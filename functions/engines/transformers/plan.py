"""Estimates the bytes a model needs, from its files' headers and the activations of a batch. Loads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from functions.engines.checkpoint.folder import Folder
from functions.engines.transformers import device as devices
from functions.engines.transformers import precision, threads
from functions.engines.transformers.options import TransformersOptions
from host.function import Load, Plan

_CPU_TOKENS = 1024
"""Measured on MiniLM, two cores: time per token is least from 1,024 to 2,048 tokens, and grows by a twelfth at 512."""
_GPU_TOKENS = 32_768
_CPU_OVERHEAD = 48
"""Starting a batch costs as much as computing so many tokens; measured on MiniLM in bf16, two cores: 2 ms."""
_GPU_OVERHEAD = 1024
_RUNTIME = 48 << 20
"""Tokenizer, allocator and thread stacks."""
_CUDA_CONTEXT = 512 << 20
_MATRICES = 12
"""Matrices of tokens x hidden that are alive at once in a layer: query, key, value, context, residuals, casts."""


def batch_tokens(options: TransformersOptions, device: torch.device, attempt: int = 0) -> int:
    """Return the token budget of a batch; half of it when a load ran out of memory and the manifest leaves it open."""
    if options.batch_tokens != "auto":
        return options.batch_tokens
    return (_CPU_TOKENS if device.type == "cpu" else _GPU_TOKENS) >> attempt


def overhead(device: torch.device) -> int:
    """Return what starting a batch costs, in tokens."""
    return _CPU_OVERHEAD if device.type == "cpu" else _GPU_OVERHEAD


def activations(config: Mapping[str, Any], tokens: int, longest: int, itemsize: int, *, eager: bool = False) -> int:
    """Return an estimate of the bytes that one batch of `tokens` needs besides the weights.

    Inputs have at most `longest` tokens; eager attention keeps a score for each pair of them and head.
    """
    hidden = _number(config, "hidden_size", "d_model", "n_embd", "dim") or 1024
    inner = _number(config, "intermediate_size", "d_ff", "n_inner", "hidden_dim") or 4 * hidden
    heads = _number(config, "num_attention_heads", "num_heads", "n_head", "n_heads") or 16
    per_token = (_MATRICES * hidden + 3 * inner) * itemsize + 2 * hidden * 4
    return tokens * (per_token + (2 * heads * longest * itemsize if eager else 0))


def encoder(load: Load, options: TransformersOptions, folder: Folder, longest: int) -> Plan:
    """Return the plan of a model that reads inputs of at most `longest` tokens and generates nothing.

    Raises `LoadFailed` for missing files and devices, `ManifestError` for a quantization that is not served.
    """
    config = folder.config()
    device = devices.choose(load.manifest.device)
    wanted = precision.choose(load.manifest.quantization, device, config.get("dtype") or config.get("torch_dtype"))
    dtype = wanted.dtype
    weights = folder.weights(dtype.itemsize, 1 if wanted.int8 else None)
    # What is checked is there in fp32 before it becomes smaller, matrix by matrix, and may have to stay so.
    most = folder.weights(wanted.first.itemsize)
    budget = batch_tokens(options, device, load.attempt)
    itemsize = dtype.itemsize if wanted.stated else wanted.first.itemsize
    batch = activations(config, max(budget, longest), longest, itemsize, eager=options.attention == "eager")
    batch *= threads.lanes(device, load.threads)
    if device.type == "cuda":
        pools = {devices.pool(device): weights + batch + _CUDA_CONTEXT, "ram": weights + _RUNTIME}
    else:
        pools = {"ram": most + batch + _RUNTIME}
    unless = ", fp32 if the model does not survive it" if wanted.checked and not wanted.stated else ""
    notes = [f"{wanted.name} on {device}{unless}, batches of up to {budget} tokens"]
    if load.manifest.slots != "auto":
        notes.append("slots has no meaning here: inputs are merged into batches")
    return Plan(
        bytes=pools,
        device=str(device),
        context=longest,
        notes=tuple(notes),
        detail={"weights": weights, "activations": batch, "dtype": wanted.name, "batch_tokens": budget},
        pools=devices.pools(device),
    )


def _number(config: Mapping[str, Any], *keys: str) -> int | None:
    return next((config[key] for key in keys if isinstance(config.get(key), int)), None)
