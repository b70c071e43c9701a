"""How the vectors of a text's tokens become one: what the file says, else what suits its architecture."""

from __future__ import annotations

from typing import Literal

import msgspec

from functions.engines.llama.model.library import lib
from functions.engines.llama.model.model import Model
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
    """What a pooled model is, whatever it is asked for."""

    encoder: bool
    """It keeps no keys and values: all of an input is computed at once."""
    causal: bool
    declared: int
    """llama.cpp's number of the pooling that the file names; 0 and below for none."""
    size: int
    """Numbers of a vector."""
    labels: int
    """Numbers of a rank."""
    vocabulary_size: int
    """Ids of the vocabulary."""
    trained: int
    recurrent: bool = False
    typed: bool = False
    """It tells the two texts of a pair apart by segments."""


class Pooling(msgspec.Struct, kw_only=True, frozen=True):
    """What was chosen."""

    kind: Kind
    why: str
    stepwise: bool
    """Inputs may be computed piece by piece, since the last token alone decides."""


def read_traits(model: Model, *, encoder: bool, declared: int) -> ModelTraits:
    """Describe an open model; `encoder` and `declared` are what a context on it tells."""
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
"""What a file is loaded for; scores and labels are both a rank's numbers."""

_NEEDS_RANK: dict[Purpose, str] = {
    "scores": "this file is no reranker: its pooling is {} ({}), and scores need rank",
    "labels": "this file has no head for classification: its pooling is {} ({}), and labels need rank",
}


def choose(known: ModelTraits, wanted: str, purpose: Purpose) -> Pooling:
    """Choose for a purpose; `wanted` is the manifest's option. Raises `LoadFailed` for a file made for the other."""
    kind, why = _kind(known, wanted)
    if purpose == "vectors" and kind == "rank":
        raise LoadFailed("this file is a reranker (its pooling is rank): it scores pairs of texts and embeds nothing")
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
