"""Small llamas with random weights as GGUF files, and LoRA adapters for models of any size. Written by hand, as bytes.

What is random is the weights; the files are opened and computed by the real llama.cpp.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Metadata = dict[str, Any]
Tensors = dict[str, NDArray[np.float32]]
_U32, _I32, _F32, _STRING, _ARRAY = 4, 5, 6, 8, 9
WIDTH, WORDS, INNER = 32, 260, 64


def write(path: Path, metadata: Metadata, tensors: Tensors) -> Path:
    """Write a file: a head, metadata, the tensors' shapes, then their numbers in rows of 32 bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    data = b""
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]
        numbers = tensor.astype(np.float32).tobytes()
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += numbers + b"\0" * (-len(numbers) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return path


def llama(layers: int = 2, context: int = 4096, seed: int = 0, experts: int = 0) -> tuple[Metadata, Tensors]:
    """Return a llama of so many layers, with a byte-level vocabulary of 260 words."""
    dice = np.random.default_rng(seed)
    metadata: Metadata = {
        "general.architecture": "llama",
        "llama.context_length": context,
        "llama.embedding_length": WIDTH,
        "llama.block_count": layers,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "llama.rope.dimension_count": WIDTH // 2,
    }
    shapes: dict[str, tuple[int, ...]] = {"attn_q": (WIDTH, WIDTH), "attn_output": (WIDTH, WIDTH)}
    shapes |= {"attn_k": (WIDTH // 2, WIDTH), "attn_v": (WIDTH // 2, WIDTH)}
    if experts:
        metadata |= {"llama.expert_count": experts, "llama.expert_used_count": 2}
        shapes |= {"ffn_gate_inp": (experts, WIDTH), "ffn_down_exps": (experts, WIDTH, INNER)}
        shapes |= {f"ffn_{name}_exps": (experts, INNER, WIDTH) for name in ("gate", "up")}
    else:
        shapes |= {"ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}
    tensors = {"token_embd.weight": dice.standard_normal((WORDS, WIDTH)), "output_norm.weight": np.ones(WIDTH)}
    for layer in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"blk.{layer}.{name}.weight"] = np.ones(WIDTH)
        for name, shape in shapes.items():
            tensors[f"blk.{layer}.{name}.weight"] = dice.standard_normal(shape) * 0.4
    return metadata | vocabulary(), {name: tensor.astype(np.float32) for name, tensor in tensors.items()}


def vocabulary() -> Metadata:
    """Return a byte-level tokenizer without merges: GPT-2's letters for bytes, and four special words."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [letters[byte] for byte in range(256)] + ["<s>", "</s>", "<a>", "<b>"],
        "tokenizer.ggml.token_type": [1] * 256 + [3] * 4,
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.eos_token_id": 257,
    }


def lora(
    shapes: dict[str, tuple[int, int]], *, seed: int = 0, strength: float = 0.1, rank: int = 4, **metadata: Any
) -> tuple[Metadata, Tensors]:
    """Return an adapter for a llama; `shapes` are the (outputs, inputs) of the tensors it changes."""
    dice = np.random.default_rng(seed)
    said: Metadata = {
        "general.architecture": "llama",
        "general.type": "adapter",
        "adapter.type": "lora",
        "adapter.lora.alpha": float(rank),
    }
    tensors: Tensors = {}
    for name, (outputs, inputs) in shapes.items():
        tensors[f"{name}.lora_a"] = (dice.standard_normal((rank, inputs)) * strength).astype(np.float32)
        tensors[f"{name}.lora_b"] = (dice.standard_normal((outputs, rank)) * strength).astype(np.float32)
    return said | metadata, tensors


def attention(layers: int, query: tuple[int, int], value: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Return the shapes of the tensors that adapters mostly change: queries and values of all layers."""
    shapes = {}
    for layer in range(layers):
        shapes[f"blk.{layer}.attn_q.weight"] = query
        shapes[f"blk.{layer}.attn_v.weight"] = value
    return shapes


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, float):
        return struct.pack("<If", _F32, value)
    if isinstance(value, list):
        kind = _STRING if not value or isinstance(value[0], str) else _I32
        items = [_text(item) if isinstance(item, str) else struct.pack("<i", item) for item in value]
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + b"".join(items)
    return struct.pack("<II", _U32, value)
