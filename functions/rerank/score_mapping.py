"""Maps a cross-encoder's logits to scores: which label means relevant, and which activation applies to its logit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from functions.rerank.options import RerankOptions
from functions.rerank.scorer import RelevanceScore
from host.errors import LoadFailed

_RELEVANT = ("relevant", "entailment", "yes", "true", "positive", "match", "1", "label_1")
"""Names of the label that means relevant, likeliest first."""

ScoreMapping = Callable[[Sequence[float]], RelevanceScore]
"""Maps the logits of one sequence to its score."""


def create(
    labels: Sequence[str], options: RerankOptions, activation: str | None, problem_type: str | None = None
) -> ScoreMapping:
    """Return the mapping for a model; `activation` is the one that the model's files name, as a dotted path.

    One label: the sigmoid of its logit, or the logit itself where the files or the manifest say so, as in
    sentence-transformers' CrossEncoder. Several: the softmax of the relevant label, or its sigmoid where
    `problem_type` is `multi_label_classification`. Raises `LoadFailed`.
    """
    if len(labels) == 1:
        identity = _is_identity(options.activation, activation)
        return lambda logits: RelevanceScore(
            float(logits[0]), float(logits[0]) if identity else sigmoid(float(logits[0]))
        )
    at = relevant_label(labels, options.label)
    if problem_type == "multi_label_classification":
        return lambda logits: RelevanceScore(float(logits[at]), sigmoid(float(logits[at])))
    return lambda logits: RelevanceScore(float(logits[at]), _softmax_at(logits, at))


def sigmoid(logit: float) -> float:
    """Return 1 / (1 + e^-logit), without overflow."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    grown = math.exp(logit)
    return grown / (1 + grown)


def configured_activation(config: Mapping[str, Any], settings: Mapping[str, Any]) -> str | None:
    """Return the activation that a cross-encoder's files name, as a dotted path; None for none.

    `config` is `config.json`, where sentence-transformers 4 and 5 and those before 4 write it under two names;
    `settings` is `config_sentence_transformers.json`.
    """
    newer = config.get("sentence_transformers")
    found = newer.get("activation_fn") if isinstance(newer, dict) else None
    found = found or config.get("sbert_ce_default_activation_function") or settings.get("activation_fn")
    return str(found) if found else None


def _is_identity(option: str, activation: str | None) -> bool:
    if option != "auto":
        return option == "identity"
    name = (activation or "Sigmoid").rpartition(".")[2]
    if name not in ("Identity", "Sigmoid"):
        raise LoadFailed(
            f"the model's files name the activation {activation}, which is not served: "
            "set options.activation to sigmoid or identity",
            param="options.activation",
        )
    return name == "Identity"


def relevant_label(labels: Sequence[str], option: str | None) -> int:
    """Return the index of the label that means relevant, `option` or by its name; raises `LoadFailed`."""
    names = [label.lower() for label in labels]
    if option is not None:
        if option.lower() not in names:
            raise LoadFailed(
                f"options.label: the model has no label {option!r}; it has {', '.join(labels)}", param="options.label"
            )
        return names.index(option.lower())
    for name in _RELEVANT:
        if name in names and (name != "label_1" or len(names) == 2):
            return names.index(name)
    raise LoadFailed(
        f"which of the labels {', '.join(labels)} means relevant is not known: set options.label",
        param="options.label",
    )


def _softmax_at(logits: Sequence[float], at: int) -> float:
    top = max(logits)
    weights = [math.exp(float(logit) - float(top)) for logit in logits]
    return weights[at] / sum(weights)
