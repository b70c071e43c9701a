"""Tiny models with random weights whose memory cannot be cut: a sliding window (Gemma 3), and a state (Mamba)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5
WIDTH, WORDS = 32, 260
Tensors = dict[str, NDArray[np.float32]]


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    if isinstance(value, float):
        return struct.pack("<If", F32, value)
    if isinstance(value, list):
        kind = STRING if not value or isinstance(value[0], str) else I32
        items = [_text(item) if isinstance(item, str) else struct.pack("<i", item) for item in value]
        return struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(items)
    return struct.pack("<II", U32, value)


def write(path: Path, metadata: dict[str, Any], tensors: Tensors) -> Path:
    """Write a GGUF file; the format is a header, metadata, tensor shapes, and the numbers in rows of 32 bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    data = b""
    for name, tensor in tensors.items():
        dims = tensor.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, len(data))
        data += tensor.tobytes() + b"\0" * (-tensor.nbytes % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return path


def vocabulary() -> dict[str, Any]:
    """A byte-level tokenizer without merges: GPT-2's letters for bytes, and four special words."""
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


def windowed() -> tuple[dict[str, Any], Tensors]:
    """Gemma 3: five layers that see a window of 16 tokens, one that sees everything."""
    dice = np.random.default_rng(1)
    sizes = {"context_length": 4096, "embedding_length": WIDTH, "block_count": 6, "feed_forward_length": 64}
    heads = {"head_count": 2, "head_count_kv": 1, "key_length": 16, "value_length": 16, "sliding_window": 16}
    metadata: dict[str, Any] = {"general.architecture": "gemma3"}
    metadata |= {f"gemma3.{key}": value for key, value in sizes.items()}
    metadata |= {f"gemma3.attention.{key}": value for key, value in heads.items()}
    metadata |= {"gemma3.attention.layer_norm_rms_epsilon": 1e-6, "gemma3.rope.freq_base": 10000.0}
    shapes = {"attn_q": (32, WIDTH), "attn_k": (16, WIDTH), "attn_v": (16, WIDTH), "attn_output": (WIDTH, 32)}
    shapes |= {"ffn_gate": (64, WIDTH), "ffn_up": (64, WIDTH), "ffn_down": (WIDTH, 64)}
    norms = {"attn_norm": WIDTH, "post_attention_norm": WIDTH, "ffn_norm": WIDTH, "post_ffw_norm": WIDTH}
    norms |= {"attn_q_norm": 16, "attn_k_norm": 16}
    tensors = _ends(dice)
    for layer in range(6):
        for name, shape in shapes.items():
            tensors[f"blk.{layer}.{name}.weight"] = _random(dice, *shape)
        for name, size in norms.items():
            tensors[f"blk.{layer}.{name}.weight"] = np.ones(size, np.float32)
    return metadata | vocabulary(), tensors


def recurrent() -> tuple[dict[str, Any], Tensors]:
    """Mamba: two layers with one state per sequence."""
    dice = np.random.default_rng(2)
    inner, state, rank, kernel = 64, 8, 4, 4
    metadata: dict[str, Any] = {"general.architecture": "mamba", "mamba.context_length": 4096}
    metadata |= {"mamba.embedding_length": WIDTH, "mamba.block_count": 2, "mamba.feed_forward_length": 0}
    metadata |= {"mamba.attention.head_count": 0, "mamba.attention.layer_norm_rms_epsilon": 1e-6}
    metadata |= {"mamba.ssm.conv_kernel": kernel, "mamba.ssm.inner_size": inner}
    metadata |= {"mamba.ssm.state_size": state, "mamba.ssm.time_step_rank": rank}
    tensors = _ends(dice)
    for layer in range(2):
        block = f"blk.{layer}."
        tensors[block + "attn_norm.weight"] = np.ones(WIDTH, np.float32)
        tensors[block + "ssm_in.weight"] = _random(dice, 2 * inner, WIDTH)
        tensors[block + "ssm_conv1d.weight"] = _random(dice, inner, kernel)
        tensors[block + "ssm_conv1d.bias"] = _random(dice, inner)
        tensors[block + "ssm_x.weight"] = _random(dice, rank + 2 * state, inner)
        tensors[block + "ssm_dt.weight"] = _random(dice, inner, rank)
        tensors[block + "ssm_dt.bias"] = _random(dice, inner)
        tensors[block + "ssm_a"] = -np.tile(np.arange(1, state + 1, dtype=np.float32) / 8, (inner, 1))
        tensors[block + "ssm_d"] = np.ones(inner, np.float32)
        tensors[block + "ssm_out.weight"] = _random(dice, WIDTH, inner)
    return metadata | vocabulary(), tensors


def _random(dice: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return (dice.standard_normal(shape) * 0.4).astype(np.float32)


def _ends(dice: np.random.Generator) -> Tensors:
    embedding = dice.standard_normal((WORDS, WIDTH)).astype(np.float32)
    return {"token_embd.weight": embedding, "output_norm.weight": np.ones(WIDTH, np.float32)}
