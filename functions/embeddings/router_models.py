"""The ways through a model as loaded models: which class serves each, their plans added up, what is told of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from functions.embeddings.tokenize import InputTokenizer
from functions.engines.checkpoint.sentence.layout import Layout
from functions.engines.checkpoint.sentence.router import Router
from functions.engines.transformers.sentence.dual_encoder import DualEncoder
from functions.engines.transformers.sentence.model import SentenceModel
from functions.engines.transformers.sentence.static_embedding import StaticEmbeddingModel
from host.function import Plan

Model = SentenceModel | DualEncoder | StaticEmbeddingModel


class RoutedModel(msgspec.Struct, frozen=True):
    """One way: a model, and what makes inputs ready for it."""

    model: Model
    items: InputTokenizer


def kind(layout: Layout) -> type[SentenceModel | DualEncoder | StaticEmbeddingModel]:
    """Return the class of models with this layout."""
    if layout.table is not None:
        return StaticEmbeddingModel
    return DualEncoder if layout.dual_encoder else SentenceModel


def joined(plans: Mapping[str, Plan]) -> Plan:
    """Return the plan of a model with all these ways; one alone stays as it is."""
    several = list(plans.values())
    if len(several) == 1:
        return several[0]
    pools: Counter[str] = Counter()
    for plan in several:
        pools.update(plan.bytes)
    return msgspec.structs.replace(
        several[0],
        bytes=dict(pools),
        context=max(plan.context or 0 for plan in several),
        notes=tuple(f"{name}: {note}" for name, plan in plans.items() for note in plan.notes),
        detail={"weights": sum(int(plan.detail.get("weights") or 0) for plan in several)},
    )


def told(sides: Mapping[str, RoutedModel], ways: Router) -> dict[str, Any]:
    """Return what was chosen; of several ways, what is said of each and which one is for what."""
    details = {name: side.model.detail() for name, side in sides.items()}
    if len(details) == 1:
        return next(iter(details.values()))
    shared = {
        key: value
        for key, value in next(iter(details.values())).items()
        if all(detail.get(key) == value for detail in details.values())
    }
    return shared | {"routes": details, "ways": {asked or "default": name for asked, name in ways.routes.items()}}
