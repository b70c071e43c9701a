"""The loaded models of a Router checkpoint, one for each route: their classes, their common plan and detail.

Router is sentence-transformers' module that sends queries and documents to different modules; a model without one
has a single route.
"""

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


class Route(msgspec.Struct, frozen=True):
    """A route's model and tokenizer."""

    model: Model
    tokenizer: InputTokenizer


def model_class(layout: Layout) -> type[SentenceModel | DualEncoder | StaticEmbeddingModel]:
    """Return the class of models with this layout."""
    if layout.table is not None:
        return StaticEmbeddingModel
    return DualEncoder if layout.dual_encoder else SentenceModel


def merge_plans(plans: Mapping[str, Plan]) -> Plan:
    """Return the plan of a model with these routes: memory is added up. The plan of a single route stays as it is."""
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


def detail(routes: Mapping[str, Route], router: Router) -> dict[str, Any]:
    """Return the models' detail; of several routes what they have in common, each one's, and which is for what."""
    details = {name: route.model.detail() for name, route in routes.items()}
    if len(details) == 1:
        return next(iter(details.values()))
    shared = {
        key: value
        for key, value in next(iter(details.values())).items()
        if all(one.get(key) == value for one in details.values())
    }
    return shared | {"routes": details, "ways": {task or "default": name for task, name in router.routes.items()}}
