"""BERT folders as GGUF files, as llama.cpp wants them: names of tensors, WordPiece vocabulary, pooling.

A cross-encoder's pooler is kept as the dense layer of its classifier, which is what Transformers computes with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import quantize
from safetensors.numpy import load_file

_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "pooler.dense": "cls",
    "classifier": "cls.output",
}
_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_EXACT = ("position_embd", "token_types")
"""Tensors that llama.cpp adds up as they are, and that stay fp32 in every file."""
_CONTROL = {"[CLS]": "cls", "[SEP]": "separator", "[PAD]": "padding", "[UNK]": "unknown", "[MASK]": "mask"}
_FILE_TYPES = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}


def convert(
    folder: Path,
    target: Path,
    kind: str = "f32",
    pooling: str | None = "mean",
    *,
    pooler: bool = True,
    head: bool = True,
    labels: Sequence[str] = (),
    split: int = 0,
) -> Path:
    """Write the folder's weights and vocabulary to `target` as `f32`, `f16` or `q8_0`, and return the (first) file.

    `pooling` is `mean`, `cls`, `last` or `rank`; None leaves it out of the file. `labels` are a classifier's.
    Without `pooler` the dense layer of its head is left out, without `head` what makes labels of it.
    With `split` each of several files has so many tensors.
    """
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(target, "bert", split_max_tensors=split)
    _describe(writer, config, kind, pooling)
    if labels:
        writer.add_classifier_output_labels(labels)
    _vocabulary(writer, folder)
    for name, tensor in load_file(folder / "model.safetensors").items():
        stem, _, part = name.removeprefix("bert.").rpartition(".")
        renamed = _renamed(stem)
        if renamed is None or (renamed == "cls" and (pooling != "rank" or not pooler)):
            continue
        if renamed == "cls.output" and not head:
            continue
        data, how = _stored(renamed, tensor, kind)
        writer.add_tensor(f"{renamed}.{part}", data, raw_dtype=how)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    first = writer.format_shard_names(target)[0]
    writer.close()
    return first


def _describe(writer: gguf.GGUFWriter, config: dict[str, Any], kind: str, pooling: str | None) -> None:
    writer.add_file_type(_FILE_TYPES[kind])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_token_type_count(config["type_vocab_size"])
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType[pooling.upper()])


def _vocabulary(writer: gguf.GGUFWriter, folder: Path) -> None:
    found = json.loads((folder / "tokenizer.json").read_text())
    words = sorted(found["model"]["vocab"].items(), key=lambda pair: pair[1])
    tokens, kinds = [], []
    for word, _ in words:
        special = word in _CONTROL
        # A word's beginning is marked instead of its continuation.
        plain = word[2:] if word.startswith("##") else f"\u2581{word}"
        tokens.append(word if special else plain)
        kinds.append(gguf.TokenType.CONTROL if special else gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    ids = dict(words)
    writer.add_bos_token_id(ids["[CLS]"])
    writer.add_sep_token_id(ids["[SEP]"])
    writer.add_pad_token_id(ids["[PAD]"])
    writer.add_unk_token_id(ids["[UNK]"])
    writer.add_mask_token_id(ids["[MASK]"])


def _renamed(stem: str) -> str | None:
    if stem in _NAMES:
        return _NAMES[stem]
    if stem.startswith("encoder.layer."):
        _, _, layer, inner = stem.split(".", 3)
        return f"blk.{layer}.{_LAYER[inner]}" if inner in _LAYER else None
    return None


def _stored(name: str, tensor: np.ndarray, kind: str) -> tuple[np.ndarray, gguf.GGMLQuantizationType]:
    tensor = tensor.astype(np.float32)
    if tensor.ndim == 1 or name in _EXACT or kind == "f32":
        return tensor, gguf.GGMLQuantizationType.F32
    if kind == "f16":
        return tensor.astype(np.float16), gguf.GGMLQuantizationType.F16
    if tensor.shape[-1] % 32:
        return tensor, gguf.GGMLQuantizationType.F32
    return quantize(tensor, gguf.GGMLQuantizationType.Q8_0), gguf.GGMLQuantizationType.Q8_0
