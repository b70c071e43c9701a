"""The interface of sequence and token classification models, implemented by each engine: items in, logits out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from functions.engines.batching.item import Encoding, Ids, Item, PairFrame
from host.function import Load, Plan, Progress

HeadKind = Literal["sequence", "token"]
"""Sequence classification gives one row of logits per input, token classification one per token."""

Logits = npt.NDArray[np.float32]


class TextTokenizer(Protocol):
    """A tokenizer that returns character offsets and frames pairs of texts."""

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
    """An engine's classifier class: how models are planned and loaded."""

    @staticmethod
    def plan(load: Load) -> Plan: ...  # noqa: D102
    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress, head: HeadKind) -> ClassifierModel: ...  # noqa: D102


class ClassifierModel(Protocol):
    """A loaded classifier. `longest` is the most tokens of an input, special ones included."""

    labels: tuple[str, ...]
    """In the order of the logits, as the model's `id2label` has them."""
    config: Mapping[str, Any]
    """The model's `config.json`."""
    longest: int

    @property
    def tokenizer(self) -> TextTokenizer:
        """The model's tokenizer."""

    async def logits(self, items: Sequence[Item]) -> list[Logits]:
        """Return the logits of each item, in their order: (labels,), or (tokens, labels) for heads on tokens.

        Raises `QueueFull`, `ShuttingDown`, `OutOfMemory`, and `NotFinite`.
        """

    def detail(self) -> dict[str, Any]:
        """Return what was chosen while loading, for `GET /v1/functions`."""

    def close(self) -> None:
        """End the threads."""
