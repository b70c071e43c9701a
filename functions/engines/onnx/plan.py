"""Estimates the bytes an ONNX model needs, from its files' sizes and the activations of a batch. Loads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from functions.engines.checkpoint import max_length
from functions.engines.onnx.files import OnnxFiles
from functions.engines.onnx.options import OnnxOptions
from host.errors import LoadFailed
from host.function import RAM, Load, Plan

_TOKENS = 1024
"""Measured on MiniLM, two cores: as fast as 2,048 in fp32, a little faster in int8, and half the memory."""
OVERHEAD = 32
"""Tokens of padding a batch may have rather than be two; on MiniLM 8 was slower in fp32, 128 and 512 were in int8."""
_RUNTIME = 48 << 20
"""Tokenizer, allocator and thread stacks."""
_MATRICES = 12
"""Matrices of tokens x hidden that are alive at once in a layer."""
_LOADING = 1.9
"""A graph with its weights in it is read whole and laid out anew for the processor before it is given back. Measured on
BERTs in fp32 of 86 and 415 MB: up to 1.6 and 1.9 of the file while loading, 1.1 and 1.0 when loaded. Files of 14 and 22
MB in 4 and 8 bits took 19 and 22 MB more than their size while loading, for which there is room in `_RUNTIME`. Weights
in a file beside the graph are mapped, and took less than their own size."""
_LOADED = 1.1


def batch_tokens(options: OnnxOptions, attempt: int = 0) -> int:
    """Return the token budget of a batch; half of it when a load ran out of memory and the manifest leaves it open."""
    return _TOKENS >> attempt if options.batch_tokens == "auto" else options.batch_tokens


def activations(config: Mapping[str, Any], tokens: int, longest: int) -> int:
    """Return an estimate of the bytes that one batch of `tokens` needs besides the weights, in fp32.

    Inputs have at most `longest` tokens; a score for each pair of them and head is kept.
    """
    hidden = _number(config, "hidden_size", "d_model", "n_embd", "dim") or 1024
    inner = _number(config, "intermediate_size", "d_ff", "n_inner", "hidden_dim") or 4 * hidden
    heads = _number(config, "num_attention_heads", "num_heads", "n_head", "n_heads") or 16
    return tokens * 4 * (_MATRICES * hidden + 3 * inner + 2 * heads * longest)


def encoder(load: Load, options: OnnxOptions, files: OnnxFiles, *bounds: int | None) -> Plan:
    """Return the plan of a model; `bounds` are lengths that the task's own files set.

    Raises `LoadFailed` for missing files and for a device other than the CPU.
    """
    if load.manifest.device not in ("auto", "cpu"):
        raise LoadFailed(
            f"device: {load.manifest.device} is not served by the onnx engine, which computes on the CPU",
            param="device",
        )
    config = files.folder.config()
    longest, bound = max_length.longest(
        config, files.folder.mapping("tokenizer_config.json"), load.manifest.context, *bounds
    )
    graph, beside = files.sizes()
    weights, peak = int(_LOADED * graph) + beside, int(_LOADING * graph) + beside
    tokens = max(batch_tokens(options, load.attempt), longest)
    batch = activations(config, tokens, longest)
    notes = [
        f"{files.file.name} on cpu, batches of up to {tokens} tokens",
        f"inputs of up to {longest} tokens ({bound})",
    ]
    if load.manifest.slots != "auto":
        notes.append("slots has no meaning here: inputs are merged into batches")
    return Plan(
        bytes={RAM: max(peak, weights + batch) + _RUNTIME},
        device="cpu",
        context=longest,
        notes=tuple(notes),
        detail={
            "weights": weights,
            "activations": batch,
            "file": files.file.name,
            "batch_tokens": batch_tokens(options, load.attempt),
        },
    )


def _number(config: Mapping[str, Any], *keys: str) -> int | None:
    return next((config[key] for key in keys if isinstance(config.get(key), int)), None)
