"""What tasks ask of a model with a head of labels, whatever engine runs it: items in, logits out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from functions.engines.batching.item import Encoding, Ids, Item, PairFrame
from host.function import Load, Plan, Progress

HeadKind = Literal["sequence", "token"]
"""One row of logits for an input, or one for each of its tokens."""

Logits = npt.NDArray[np.float32]


class TextTokenizer(Protocol):
    """A tokenizer that knows places in texts and pairs of texts."""

    vocabulary: int
    prefix: list[int]
    suffix: list[int]
    pair: PairFrame

    async def encode(self, texts: Sequence[str]) -> list[Ids]: ...  # noqa: D102
    async def pieces(self, texts: Sequence[str]) -> list[Encoding]: ...  # noqa: D102
    def bare(self, text: str) -> list[int]: ...  # noqa: D102
    def frame(self, ids: Sequence[int], before: Sequence[int] = ()) -> Ids: ...  # noqa: D102
    def literal(self) -> None: ...  # noqa: D102


class ClassifierEngine(Protocol):
    """The class of an engine's models with a head."""

    @staticmethod
    def plan(load: Load) -> Plan: ...  # noqa: D102
    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress, head: HeadKind) -> ClassifierModel: ...  # noqa: D102


class ClassifierModel(Protocol):
    """A loaded model. `longest` is an input's tokens, special ones included."""

    labels: tuple[str, ...]
    """In the order of the logits, as the model's `id2label` has them."""
    config: Mapping[str, Any]
    """The model's `config.json`."""
    longest: int

    @property
    def tokenizer(self) -> TextTokenizer:
        """The engine's own kind of tokenizer."""

    async def logits(self, items: Sequence[Item]) -> list[Logits]:
        """Return the logits of each item, in their order: (labels,), or (tokens, labels) for heads on tokens.

        Raises `QueueFull`, `ShuttingDown`, `OutOfMemory`, and `NotFinite`.
        """

    def detail(self) -> dict[str, Any]:
        """Return what was chosen, for `facts`."""

    def close(self) -> None:
        """End the threads."""
