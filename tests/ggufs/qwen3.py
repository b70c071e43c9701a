"""A tiny random Qwen3 as a folder's model and as GGUF: a decoder whose file asks for EOS at the end of every text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import torch
import transformers

EOS = 257
_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_NAMES = {"embed_tokens": "token_embd", "norm": "output_norm"}


def random() -> Any:
    """Return a random `Qwen3Model`."""
    torch.manual_seed(11)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = transformers.Qwen3Config(
        vocab_size=260, num_key_value_heads=2, head_dim=16, max_position_embeddings=512, **sizes
    )
    model = transformers.Qwen3Model(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model


def convert(
    model: Any,
    target: Path,
    pooling: str | None = "last",
    *,
    head: torch.Tensor | None = None,
    labels: list[str] | None = None,
    template: str | None = None,
    output: torch.Tensor | None = None,
) -> Path:
    """Write the model with a vocabulary of bytes, `<s>`, `</s>` and two more, in fp32.

    `head` (labels, hidden) is what a reranker has, `template` its prompt for pairs; `output` is a head for words.
    """
    config = model.config
    writer = gguf.GGUFWriter(target, "qwen3")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType[pooling.upper()])
    _vocabulary(writer)
    if labels is not None:
        writer.add_classifier_output_labels(labels)
    if template is not None:
        writer.add_chat_template([{"name": "rerank", "template": template}])
    for name, tensor in model.state_dict().items():
        writer.add_tensor(_renamed(name), tensor.float().numpy())
    for name, extra in (("cls.output", head), ("output", output)):
        if extra is not None:
            writer.add_tensor(f"{name}.weight", extra.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _vocabulary(writer: gguf.GGUFWriter) -> None:
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([letters[byte] for byte in range(256)] + ["<s>", "</s>", "<a>", "<b>"])
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 4)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(True)


def _renamed(name: str) -> str:
    stem, _, part = name.rpartition(".")
    if stem.startswith("layers."):
        _, layer, inner = stem.split(".", 2)
        return f"blk.{layer}.{_LAYER[inner]}.{part}"
    return f"{_NAMES[stem]}.{part}"
