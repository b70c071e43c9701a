"""Reads how a model makes sparse vectors from its files.

SPLADE (Formal et al. 2021, arXiv:2109.10086) uses a masked language model's logits; BGE-M3 (Chen et al. 2024,
arXiv:2402.03216) weighs each token of the text by a linear layer over its state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence.modules import Module
from host.errors import LoadFailed

LEXICAL = "sparse_linear"
_POOLINGS = ("max", "sum")
_ACTIVATIONS = ("relu", "log1p_relu")


class Splade(msgspec.Struct, kw_only=True, frozen=True):
    """The weight of a word is log(1 + relu(logit)), pooled over the text's tokens."""

    pooling: Literal["max", "sum"] = "max"
    double_log: bool = False
    """The logarithm is taken twice, as OpenSearch's models do (arXiv:2504.14839)."""
    top_k: int | None = None
    """Keep only the largest weights; None for all (`max_active_dims`)."""


class Lexical(msgspec.Struct, kw_only=True, frozen=True):
    """The weight of a token of the text is relu(linear(state)); `file` holds the linear layer."""

    file: str


class StaticSparse(msgspec.Struct, kw_only=True, frozen=True):
    """Each distinct token of the text has a fixed weight from a table (SparseStaticEmbedding, IDF)."""

    top_k: int | None = None
    """Keep only the largest weights; None for all (`max_active_dims`)."""


def splade(listed: Sequence[Module], settings: dict[str, Any]) -> Splade:
    """Return what the modules say; raises `LoadFailed` for what is not served."""
    if len(listed) > 2:
        raise LoadFailed(f"modules.json: {listed[2].kind} after SpladePooling is not served")
    config, place = listed[1].config, f"{listed[1].path}/config.json"
    pooling, activation = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
    if pooling not in _POOLINGS:
        raise LoadFailed(f"{place}: pooling_strategy {pooling!r} is not known")
    if activation not in _ACTIVATIONS:
        raise LoadFailed(f"{place}: activation_function {activation!r} is not known")
    return Splade(pooling=pooling, double_log=activation == "log1p_relu", top_k=settings.get("max_active_dims"))


def lexical(folder: Folder) -> Lexical | None:
    """Return BGE-M3's lexical layer if its file lies beside the model as safetensors."""
    file = f"{LEXICAL}.safetensors"
    return Lexical(file=file) if folder.has(file) else None
