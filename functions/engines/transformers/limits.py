"""How many tokens a model takes, from its files: positions, the tokenizer's own limit, the manifest's `context`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from host.errors import LoadFailed

_OFFSET = frozenset(
    {"camembert", "data2vec-text", "ibert", "longformer", "luke", "mpnet", "roberta", "roberta-prelayernorm"}
    | {"xlm-roberta", "xlm-roberta-xl", "xmod"}
)
"""Model types whose positions start behind the padding token's id, so that 514 rows serve 512 tokens."""

_RELATIVE = frozenset({"t5", "mt5", "umt5", "longt5"})
"""Model types that know no last position; their `n_positions` is what they were trained on."""

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
    nothing bounds it.
    """
    declared = tokenizer.get("model_max_length")
    bounds = [(number, "the model's own files") for number in others if number]
    if isinstance(declared, int | float) and 0 < declared < _UNSET:
        bounds.append((int(declared), "tokenizer_config.json"))
    if (rows := positions(config)) is not None:
        bounds.append((rows, "the model's positions"))
    if context != "auto":
        bounds.append((context, "the manifest's context"))
    if not bounds:
        raise LoadFailed("no file of the model says how many tokens it takes: set `context` in the manifest")
    return min(bounds)
