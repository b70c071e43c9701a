"""The manifest's `options` for the classify function, on any engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from functions.classify.openai_categories import CATEGORIES, nearest

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Label = Annotated[str, msgspec.Meta(min_length=1)]
Category = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(CATEGORIES)})]
Activation = Literal["auto", "softmax", "sigmoid", "none"]
Windows = Literal["mean", "max", "first", "off"]


class Rule(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The moderation categories of a label, and its threshold."""

    category: Category | list[Category]
    """One or more of OpenAI's categories."""
    threshold: Share | None = None
    """The score from which the label flags; default: the label's `threshold`, or 0.5 where it has none."""


Table = Mapping[str, str | list[str] | Rule]


class ClassifyOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The manifest's `options` when the task is `classify`, beside the engine's."""

    activation: Activation = "auto"
    """How a model's numbers become scores. `auto` goes by `problem_type` in `config.json`, as Transformers does:
    softmax where one label is right, sigmoid where several may be or there is only one, `none` for regression."""
    threshold: Share | dict[Label, Share] | Literal["auto"] = "auto"
    """The score from which a label is listed, or one for each label by its name. `auto` is 0.5 where several labels may
    be right and 0 where one is. A request's `threshold` goes first."""
    top_k: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The most labels listed for a text; a request's `top_k` goes first."""
    windows: Windows | Literal["auto"] = "auto"
    """How a text that is longer than the model takes is read. `mean` and `max` read all of it in windows and put their
    numbers together; `first` reads its beginning, `off` answers 400. `auto` is `mean`, and `max` for moderations."""
    overlap: Annotated[float, msgspec.Meta(ge=0, le=0.9)] = 0.125
    """The share of a window that the next one reads again."""
    labels: Annotated[list[Label], msgspec.Meta(max_length=256)] | None = None
    """Zero-shot: the labels where a request brings none. The model has to be one of natural language inference."""
    hypothesis_template: str = "This example is {}."
    """Zero-shot: the sentence that is true of a text when the label, in the place of `{}`, is right."""
    entailment: Label | None = None
    """Zero-shot: the model's label that says that the sentence is true, where no name begins with `entail`."""
    multi_label: bool = False
    """Zero-shot: several labels may be right, and each is scored by itself."""
    moderation: dict[Label, Category | list[Category] | Rule] = {}
    """Serve `/v1/moderations`: for each label one or more of OpenAI's categories, or `{category, threshold}`."""

    def __post_init__(self) -> None:
        """Check options against each other; raises `ValueError`, which the manifest reader reports with its line."""
        if "{}" not in self.hypothesis_template:
            raise ValueError("`hypothesis_template` must have {} in it, where the label goes")
        for label, rule in self.moderation.items():
            _check_categories(label, categories(rule))
        if self.labels is None:
            return
        if not self.labels:
            raise ValueError("`labels` is empty: name at least one, or leave it out")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("`labels`: a label is listed twice")
        check_labels("moderation", self.moderation, self.labels)
        if isinstance(self.threshold, dict):
            check_labels("threshold", self.threshold, self.labels)


def categories(rule: str | list[str] | Rule) -> list[str]:
    """Return the categories of a label's entry in the `moderation` table."""
    named = rule.category if isinstance(rule, Rule) else rule
    return [named] if isinstance(named, str) else named


def check_labels(key: str, named: Iterable[str], known: Iterable[str]) -> None:
    """Raise `ValueError` for a label that the model (or `labels`) does not have."""
    labels = list(known)
    for label in named:
        if label not in labels:
            raise ValueError(f"`{key}`: there is no label `{label}`; {nearest(label, labels)}")


def _check_categories(label: str, named: list[str]) -> None:
    if not named:
        raise ValueError(f"`moderation`: `{label}` names no category")
    for category in named:
        if category not in CATEGORIES:
            raise ValueError(f"`moderation`: `{category}` is no category; {nearest(category, CATEGORIES)}")
