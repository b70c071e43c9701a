"""How many tokens a model takes, from its files: positions, the tokenizer's own limit, the manifest's `context`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from host.errors import LoadFailed, ManifestError

_OFFSET = frozenset(
    {"camembert", "data2vec-text", "ibert", "longformer", "luke", "mpnet", "roberta", "roberta-prelayernorm"}
    | {"xlm-roberta", "xlm-roberta-xl", "xmod"}
)
"""Model types whose positions start behind the padding token's id, so that 514 rows serve 512 tokens."""

_RELATIVE = frozenset({"t5", "mt5", "umt5", "longt5"})
"""Model types that know no last position; their `n_positions` is what they were trained on."""

_OWN = "the model's own files, such as max_seq_length in sentence_bert_config.json"

_UNSET = 1_000_000_000
"""Tokenizers without a limit carry a number as absurd as 10^30."""


def positions(config: Mapping[str, Any]) -> int | None:
    """Return how many tokens the position embeddings of `config.json` serve; None where there is no bound."""
    kind = config.get("model_type")
    if kind in _RELATIVE:
        return None
    rows = config.get("max_position_embeddings") or config.get("n_positions")
    if not isinstance(rows, int) or rows < 1:
        return None
    if kind not in _OFFSET:
        return rows
    pad = config.get("pad_token_id")
    return rows - (1 if pad is None else int(pad)) - 1


def longest(
    config: Mapping[str, Any], tokenizer: Mapping[str, Any], context: int | Literal["auto"], *others: int | None
) -> tuple[int, str]:
    """Return the most tokens of one input, special ones included, and what set that bound.

    `tokenizer` is `tokenizer_config.json`; `others` are bounds of the task's own files. Raises `LoadFailed` when
    nothing bounds it, and `ManifestError` for a `context` of more tokens than the model's files allow.
    """
    declared = tokenizer.get("model_max_length")
    bounds = [(number, _OWN) for number in others if number]
    if isinstance(declared, int | float) and 0 < declared < _UNSET:
        bounds.append((int(declared), "model_max_length in tokenizer_config.json"))
    if (rows := positions(config)) is not None:
        key = "max_position_embeddings" if config.get("max_position_embeddings") else "n_positions"
        bounds.append((rows, f"the model's positions, {key} in config.json"))
    if context == "auto":
        if not bounds:
            raise LoadFailed("no file of the model says how many tokens it takes: set `context` in the manifest")
        return min(bounds)
    return stated(context, *min(bounds, default=(context, "")))


def stated(context: int | Literal["auto"], most: int, whose: str) -> tuple[int, str]:
    """Return the manifest's `context`, or `most` where it leaves that open, and what set it; raises like `longest`."""
    if context == "auto":
        return most, whose
    if context > most:
        raise ManifestError(f"context is {context}, but the model takes at most {most} tokens ({whose})", key="context")
    return context, "the manifest's context"
