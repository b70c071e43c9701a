"""Chooses the pooling of a model: the manifest's option, else what the file declares, else by architecture."""

from __future__ import annotations

from typing import Literal

import msgspec

from functions.engines.llama.model.model import Model
from functions.engines.llama.model.native_library import lib
from host.errors import LoadFailed

Kind = Literal["mean", "cls", "last", "rank"]

NUMBERS: dict[Kind, int] = {
    "mean": lib.LLAMA_POOLING_TYPE_MEAN,
    "cls": lib.LLAMA_POOLING_TYPE_CLS,
    "last": lib.LLAMA_POOLING_TYPE_LAST,
    "rank": lib.LLAMA_POOLING_TYPE_RANK,
}
_KINDS = {number: kind for kind, number in NUMBERS.items()}
_CAUSAL = "a causal language model's last token has seen all others"


class ModelTraits(msgspec.Struct, kw_only=True, frozen=True):
    """Properties of a model that pooling depends on."""

    encoder: bool
    """It has no KV cache: each input is computed in one batch."""
    causal: bool
    declared: int
    """llama.cpp's number of the pooling that the file declares; 0 or below for none."""
    size: int
    """Size of an embedding."""
    labels: int
    """Outputs of the classifier head."""
    vocabulary_size: int
    """Number of token ids."""
    trained: int
    recurrent: bool = False
    typed: bool = False
    """It has token type embeddings for the two texts of a pair."""


class Pooling(msgspec.Struct, kw_only=True, frozen=True):
    """The pooling that was chosen, and why."""

    kind: Kind
    why: str
    stepwise: bool
    """Inputs may be computed in chunks: only the last token's output is used."""


def read_traits(model: Model, *, encoder: bool, declared: int) -> ModelTraits:
    """Return the traits of an open model; `encoder` and `declared` are read from a context on it."""
    architecture = model.metadata("general.architecture") or ""
    causal = model.metadata(f"{architecture}.attention.causal") != "false"
    types = model.metadata("tokenizer.ggml.token_type_count") or "1"
    return ModelTraits(
        encoder=encoder,
        causal=causal and not encoder,
        declared=declared,
        size=lib.llama_model_n_embd_out(model.handle),
        labels=lib.llama_model_n_cls_out(model.handle),
        vocabulary_size=model.vocabulary.size,
        trained=model.trained,
        recurrent=model.recurrent,
        typed=architecture == "bert" and types.isdigit() and int(types) > 1,
    )


Purpose = Literal["vectors", "scores", "labels"]
"""What a model is loaded for; scores and labels both use rank pooling."""

_NEEDS_RANK: dict[Purpose, str] = {
    "scores": "this file is no reranker: its pooling is {} ({}), and scores need rank",
    "labels": "this file has no head for classification: its pooling is {} ({}), and labels need rank",
}


def choose(known: ModelTraits, wanted: str, purpose: Purpose) -> Pooling:
    """Choose the pooling; `wanted` is the manifest's option. Raises `LoadFailed` if it does not serve the purpose."""
    kind, why = _kind(known, wanted)
    if purpose == "vectors" and kind == "rank":
        raise LoadFailed(
            "this file is a reranker (its pooling is rank): it scores pairs of texts and has no embeddings"
        )
    if purpose in _NEEDS_RANK and kind != "rank":
        raise LoadFailed(_NEEDS_RANK[purpose].format(kind, why))
    return Pooling(kind=kind, why=why, stepwise=known.causal and kind in ("last", "rank"))


def _kind(known: ModelTraits, wanted: str) -> tuple[Kind, str]:
    if wanted in NUMBERS:
        return next(kind for kind in NUMBERS if kind == wanted), "the manifest's options"
    if known.declared in _KINDS:
        return _KINDS[known.declared], "the file"
    if known.causal:
        return "last", f"the file names none; {_CAUSAL}"
    return "mean", "the file names none; mean over the text's tokens"
