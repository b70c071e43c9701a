"""Tiny random models saved by sentence-transformers itself, and what it says of them, to compare with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentence_transformers
import tokenizers
import torch
import transformers
from sentence_transformers.sentence_transformer import modules
from tinymodels import WORDS, configured, tiny
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from functions.embeddings.api import EmbeddingsRequest, SparseVectors, Vectors
from functions.embeddings.transformers import TransformersEmbeddings

TEXTS = [
    "river stone",
    "light",
    "number window garden paper winter music train bread letter",
    "stone river light . paper , river",
    "unheard of river",
    " ".join(WORDS * 3),
]
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MORE = ("<mask>", ".", ",", "[unused0]", "[unused1]")
CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}


def tokenizer(*, causal: bool = False, added: Sequence[str] = ()) -> tokenizers.Tokenizer:
    """Return a tokenizer of a few words; for causal models a text ends with </s> and begins with nothing."""
    vocabulary = {word: at for at, word in enumerate([*SPECIAL, *WORDS, *MORE])}
    made = tokenizers.Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()
    single = "$A </s>" if causal else "<s> $A </s>"
    made.post_processor = TemplateProcessing(
        single=single, pair=f"{single} $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    made.add_special_tokens(list(SPECIAL))
    for word in added:
        made.add_tokens([tokenizers.AddedToken(word, normalized=False, special=True)])
    return made


def base(folder: Path, kind: str = "bert", *, limit: int = 60, added: Sequence[str] = (), **tokens: Any) -> Path:
    """Save a tiny model of Transformers with a tokenizer that says all that sentence-transformers asks of it."""
    folder.mkdir(parents=True)
    tiny(folder, kind)
    tokenizer(causal=kind == "qwen3", added=added).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**CONFIG, "model_max_length": limit, **tokens}))
    return folder


def masked(folder: Path, kind: str) -> Path:
    """Save a tiny masked language model."""
    base(folder, kind)
    torch.manual_seed(3)
    model = transformers.AutoModelForMaskedLM.from_config(configured(kind))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    model.save_pretrained(folder)
    return folder


def saved(model: Any, folder: Path) -> Any:
    """Save a model of sentence-transformers, and return it as it is loaded from there."""
    model.save_pretrained(str(folder), create_model_card=False)
    return type(model)(str(folder), device="cpu", local_files_only=True)


def dense(folder: Path, *after: Any, kind: str = "bert", **more: Any) -> Any:
    """Return a SentenceTransformer of a tiny model and what comes after it; its folder is `folder / "st"`."""
    prompts = {key: more.pop(key) for key in ("prompts", "default_prompt_name", "truncate_dim") if key in more}
    transformer = {key: more.pop(key) for key in ("max_seq_length", "do_lower_case", "config_kwargs") if key in more}
    first = modules.Transformer(str(base(folder / "base", kind, **more)), **transformer)
    made = sentence_transformers.SentenceTransformer(modules=[first, *after], device="cpu", **prompts)
    return saved(made, folder / "st")


async def ask(instance: TransformersEmbeddings, given: Any, **fields: Any) -> Vectors:
    return await instance.answer(EmbeddingsRequest(model="m", input=given, **fields))


async def vectors(instance: TransformersEmbeddings, given: Any, **fields: Any) -> np.ndarray:
    found = await ask(instance, given, **fields)
    return np.frombuffer(found.data, "<f4").reshape(-1, found.dimension)


def far(found: np.ndarray, expected: Any) -> float:
    """Return the largest difference of any two numbers."""
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max())


def full(found: SparseVectors | None, size: int) -> np.ndarray:
    """Return sparse vectors as rows of all numbers."""
    assert found is not None
    ids, weights = np.frombuffer(found.indices, "<i4"), np.frombuffer(found.values, "<f4")
    assert sum(found.counts) == len(ids) == len(weights)
    rows = np.zeros((len(found.counts), size), dtype=np.float32)
    ends = np.cumsum(found.counts)
    for row, (start, end) in enumerate(zip(ends - found.counts, ends, strict=True)):
        assert (np.diff(ids[start:end]) > 0).all()
        rows[row, ids[start:end]] = weights[start:end]
    return rows
