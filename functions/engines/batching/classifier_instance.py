"""The base of functions that run a classification head: planning, loading, closing and reporting, for every engine.

A function derives once and says what it does with logits, then once for each engine, naming the engine's model class.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from functions.engines.batching.classifier import ClassifierEngine, ClassifierModel, HeadKind
from host.function import Instance, InstanceInfo, Load, Plan, Progress


class ClassifierInstance(Instance):
    """A loaded model with a classification head. Subclasses answer requests with `self.model.logits(items)`."""

    engine: ClassVar[type[ClassifierEngine]]
    """The engine's class of models."""
    head: ClassVar[HeadKind] = "sequence"
    """One row of logits for an input, or one for each of its tokens."""
    capacity: ClassVar[int] = 256
    """Requests side by side. The batcher merges them, so that more would only wait here instead of in the host."""

    def __init__(self, load: Load, model: ClassifierModel) -> None:
        """Keep the model; subclasses read their options here and raise `LoadFailed` for those that do not suit it."""
        self.name = load.manifest.name
        self.model = model

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        return cls.engine.plan(load)

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer, weights and head; raises `LoadFailed` and `OutOfMemory`, with everything closed again."""
        model = cls.engine.load(load, plan, progress, cls.head)
        try:
            return cls(load, model)
        except BaseException:
            model.close()
            raise

    def info(self) -> InstanceInfo:
        """Return the capacity, the longest input in tokens, and what was chosen."""
        detail = {**self.model.detail(), **self.detail()}
        return InstanceInfo(capacity=self.capacity, context=self.model.longest, detail=detail)

    def detail(self) -> dict[str, Any]:
        """Return what the function chose, to be shown beside what the model chose."""
        return {}

    def close(self) -> None:
        """End the model's threads and free it."""
        self.model.close()
