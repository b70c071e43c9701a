"""Tiny random models in real architectures, saved as folders, and what it takes to load them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import loads
import tokenizers
import torch
import transformers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from host.function import Load

WORDS = "river stone light number window garden paper winter music train bread letter".split()  # noqa: SIM905


def given(path: Path, options: dict[str, Any] | None = None, **more: Any) -> Load:
    return loads.given("embeddings", path, options, **more)


SMALL: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def configured(kind: str) -> Any:
    """Return the configuration of a tiny model of an architecture."""
    if kind in ("roberta", "mpnet", "xlm-roberta"):
        name = {"roberta": "RobertaConfig", "mpnet": "MPNetConfig", "xlm-roberta": "XLMRobertaConfig"}[kind]
        pads = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
        return getattr(transformers, name)(
            vocab_size=40, max_position_embeddings=514, type_vocab_size=1, **SMALL, **pads
        )
    if kind == "distilbert":
        return transformers.DistilBertConfig(
            vocab_size=40, dim=32, hidden_dim=64, n_layers=2, n_heads=4, max_position_embeddings=64, pad_token_id=1
        )
    if kind == "qwen3":
        return transformers.Qwen3Config(
            vocab_size=40, num_key_value_heads=2, head_dim=8, max_position_embeddings=128, pad_token_id=1, **SMALL
        )
    if kind == "modernbert":
        return transformers.ModernBertConfig(
            vocab_size=40, max_position_embeddings=128, pad_token_id=1, global_attn_every_n_layers=1, **SMALL
        )
    if kind == "deberta-v2":
        return transformers.DebertaV2Config(
            vocab_size=40, max_position_embeddings=64, type_vocab_size=0, pad_token_id=1, relative_attention=True,
            pos_att_type=["p2c", "c2p"], position_buckets=16, norm_rel_ebd="layer_norm", share_att_key=True, **SMALL,
        )  # fmt: skip
    if kind == "t5":
        return transformers.T5Config(
            vocab_size=40, d_model=32, d_ff=64, d_kv=8, num_layers=2, num_heads=4, pad_token_id=1
        )
    return transformers.BertConfig(vocab_size=40, max_position_embeddings=64, pad_token_id=1, **SMALL)


def words_tokenizer() -> tokenizers.Tokenizer:
    """Return a tokenizer of a few words: <s>=0, <pad>=1, </s>=2, <unk>=3, then the words."""
    vocabulary = {word: at for at, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *WORDS])}
    made = tokenizers.Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


def tiny(folder: Path, kind: str = "bert", files: dict[str, Any] | None = None) -> Path:
    """Save a tiny random model and what else is to lie beside it, as `path: JSON`."""
    torch.manual_seed(7)
    config = configured(kind)
    auto = transformers.T5ForConditionalGeneration if kind == "t5" else None
    if kind == "qwen3":
        auto = transformers.Qwen3ForCausalLM
    model = auto(config) if auto else transformers.AutoModel.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    words_tokenizer().save(str(folder / "tokenizer.json"))
    write(folder, {"tokenizer_config.json": {"model_max_length": 512}} | (files or {}))
    return folder


def headed(folder: Path, kind: str, head: Literal["sequence", "token"], labels: Sequence[str], **config: Any) -> Path:
    """Save a tiny random model with a head of labels; `config` goes into its configuration."""
    torch.manual_seed(11)
    made = configured(kind)
    made.id2label, made.label2id = dict(enumerate(labels)), {label: at for at, label in enumerate(labels)}
    made.num_labels = len(labels)
    for key, value in config.items():
        setattr(made, key, value)
    auto = {
        "sequence": transformers.AutoModelForSequenceClassification,
        "token": transformers.AutoModelForTokenClassification,
    }[head]
    model = auto.from_config(made)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    words_tokenizer().save(str(folder / "tokenizer.json"))
    return write(folder, {"tokenizer_config.json": {"model_max_length": 512}})


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder


def modules(*kinds: str) -> list[dict[str, Any]]:
    """Return a `modules.json`."""
    return [
        {
            "idx": at,
            "name": str(at),
            "path": "" if at == 0 else f"{at}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for at, kind in enumerate(kinds)
    ]
