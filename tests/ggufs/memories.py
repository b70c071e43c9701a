"""Small models whose memory cannot be cut or holds a window only, with random weights, for GGUF files."""

from __future__ import annotations

from typing import Any

import numpy as np
from ggufs.llamas import WIDTH, WORDS, Tensors, vocabulary
from numpy.typing import NDArray


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
