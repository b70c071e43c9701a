"""What a head's logits mean: which label is the relevant one, and what becomes of its logit. It knows no library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from functions.rerank.options import RerankOptions
from functions.rerank.scorer import Mark
from host.errors import LoadFailed

_RELEVANT = ("relevant", "entailment", "yes", "true", "positive", "match", "1", "label_1")
"""Names of the label that says a document answers, likeliest first."""

Judge = Callable[[Sequence[float]], Mark]
"""One input's logits to its mark."""


def judge(labels: Sequence[str], options: RerankOptions, activation: str | None, problem: str | None = None) -> Judge:
    """Return what turns logits into marks; `activation` is what the model's files name, as a dotted path.

    One label: the sigmoid of its logit, or the logit itself where the files or the manifest say so, as
    sentence-transformers' CrossEncoder does it. Several: the softmax's share of the relevant one, or its own sigmoid
    where `problem`, the model's `problem_type`, says that labels go together. Raises `LoadFailed`.
    """
    if len(labels) == 1:
        bare = _identity(options.activation, activation)
        return lambda logits: Mark(float(logits[0]), float(logits[0]) if bare else sigmoid(float(logits[0])))
    at = relevant(labels, options.label)
    if problem == "multi_label_classification":
        return lambda logits: Mark(float(logits[at]), sigmoid(float(logits[at])))
    return lambda logits: Mark(float(logits[at]), _share(logits, at))


def sigmoid(logit: float) -> float:
    """Return 1 / (1 + e^-logit), without overflow."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    grown = math.exp(logit)
    return grown / (1 + grown)


def stated(config: Mapping[str, Any], settings: Mapping[str, Any]) -> str | None:
    """Return the activation that a cross-encoder's files name.

    `config` is `config.json`, where sentence-transformers 4 and 5 and those before 4 write it under two names;
    `settings` is `config_sentence_transformers.json`.
    """
    newer = config.get("sentence_transformers")
    found = newer.get("activation_fn") if isinstance(newer, dict) else None
    found = found or config.get("sbert_ce_default_activation_function") or settings.get("activation_fn")
    return str(found) if found else None


def _identity(wanted: str, activation: str | None) -> bool:
    if wanted != "auto":
        return wanted == "identity"
    kind = (activation or "Sigmoid").rpartition(".")[2]
    if kind not in ("Identity", "Sigmoid"):
        raise LoadFailed(
            f"the model's files name the activation {activation}, which is not served: "
            "set options.activation to sigmoid or identity",
            param="options.activation",
        )
    return kind == "Identity"


def relevant(labels: Sequence[str], wanted: str | None) -> int:
    """Return the place of the label that says a document answers; raises `LoadFailed` where none is known to."""
    names = [label.lower() for label in labels]
    if wanted is not None:
        if wanted.lower() not in names:
            raise LoadFailed(
                f"options.label: the model has no label {wanted!r}; it has {', '.join(labels)}", param="options.label"
            )
        return names.index(wanted.lower())
    for name in _RELEVANT:
        if name in names and (name != "label_1" or len(names) == 2):
            return names.index(name)
    raise LoadFailed(
        f"which label says that a document answers cannot be told from {', '.join(labels)}: set options.label",
        param="options.label",
    )


def _share(logits: Sequence[float], at: int) -> float:
    top = max(logits)
    shares = [math.exp(float(logit) - float(top)) for logit in logits]
    return shares[at] / sum(shares)
