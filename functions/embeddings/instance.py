"""A model that embeds, whatever engine it is of: inputs become items, the engine's vectors the answer's bytes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from functions.embeddings import openai_token_ids, output_format
from functions.embeddings.api import EmbeddingsRequest, Kind, Rows, Sparse, Vectors
from functions.embeddings.inputs import Given, check, listed
from functions.embeddings.options import EmbeddingsOptions
from functions.embeddings.tokenize import InputTokenizer, Tokenizer
from functions.engines.batching.item import Item
from functions.engines.checkpoint.sentence.layout import Layout
from functions.engines.checkpoint.sentence.output import SentenceOutput
from host.errors import InvalidRequest, NotFinite, UnsupportedParameter
from host.function import Instance, InstanceInfo, Load, Usage

CAPACITY = 256
"""Requests side by side; the batcher merges them, so more would only wait here instead of in the host."""
_TINY = 1e-12

Vector = npt.NDArray[np.float32]


class EmbeddingsInstance(Instance):
    """A loaded model. A subclass says how items are made and computed."""

    def __init__(self, name: str, items: InputTokenizer) -> None:
        """`items` makes those of requests, unless `_chosen` says which others do; `name` is the manifest's."""
        self._name = name
        self._items = items

    async def answer(self, request: EmbeddingsRequest) -> Vectors:
        """Return what each input became. Raises `InvalidRequest`, `InputTooLong`, and `NotFinite` naming the input."""
        check(request)
        chosen = self._chosen(request)
        kinds = _kinds(request, chosen.layout)
        _check_scale(request, kinds, chosen.layout)
        size = chosen.dimension(request) if "dense" in kinds else 0
        try:
            items, outputs = await self._computed(request, listed(request.input), kinds)
        except NotFinite as error:
            place = f"input[{error.extra['index']}]" if "index" in error.extra else "input"
            raise NotFinite(f"{place}: {error.message}", param=place, extra=error.extra) from error
        return Vectors(
            model=self._name,
            data=_joined([one.dense for one in outputs if one.dense is not None], size, chosen.layout),
            dimension=size,
            usage=Usage(prompt_tokens=sum(len(item.ids) for item in items)),
            sparse=_sparse(outputs) if "sparse" in kinds else None,
            colbert=_rows(outputs) if "colbert" in kinds else None,
        )

    def info(self) -> InstanceInfo:
        """Return what was chosen, and by which file."""
        return InstanceInfo(capacity=CAPACITY, context=self._longest(), detail=self._detail())

    def _chosen(self, request: EmbeddingsRequest) -> InputTokenizer:
        """Return what makes a request's inputs ready; raises `InvalidRequest` where the model has no way for it."""
        return self._items

    @abstractmethod
    async def _computed(
        self, request: EmbeddingsRequest, inputs: Sequence[Given], kinds: tuple[Kind, ...]
    ) -> tuple[Sequence[Item], Sequence[SentenceOutput]]:
        """Return the inputs as tokens, and what became of each, in their order."""

    @abstractmethod
    def _longest(self) -> int:
        """Return the most tokens of an input."""

    @abstractmethod
    def _detail(self) -> dict[str, Any]:
        """Return what was chosen."""


def _kinds(request: EmbeddingsRequest, layout: Layout) -> tuple[Kind, ...]:
    """Return what is asked for; raises `InvalidRequest` for what the model has not."""
    asked, has = output_format.kinds(request), layout.kinds
    missing = next((kind for kind in asked if kind not in has), None)
    if missing is None:
        return asked
    why = f" ({layout.missing[missing]})" if missing in layout.missing else ""
    raise InvalidRequest(
        f"this model makes no {missing} vectors{why}; send embedding_type: {' or '.join(map(repr, has))}",
        param="embedding_type",
    )


def _check_scale(request: EmbeddingsRequest, kinds: tuple[Kind, ...], layout: Layout) -> None:
    """Raise `UnsupportedParameter` where vectors of length 1 are wanted, and the model's are not."""
    for name in ("normalized", "normalize"):
        if getattr(request, name) and "dense" in kinds and not layout.normalizes:
            raise UnsupportedParameter(
                f"{name} is true, and this model's vectors are not scaled to length 1; leave it out", param=name
            )


def _joined(vectors: list[Vector], size: int, layout: Layout) -> bytes:
    """Return the vectors as little-endian float32, cut to `size` and scaled again when they were."""
    if not vectors:
        return b""
    rows = np.stack(vectors)
    if size < rows.shape[1]:
        rows = rows[:, :size]
        if layout.normalizes:
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY)
    return rows.astype("<f4", copy=False).tobytes()


class Embedder(Protocol):
    """What a loaded model of a folder tells of itself."""

    layout: Layout
    longest: int
    size: int

    @property
    def tokenizer(self) -> Tokenizer:
        """The engine's own kind."""


def items_of(model: Embedder, load: Load, foreign_: openai_token_ids.OpenAITokenIds | None) -> InputTokenizer:
    """Return what makes a model's inputs ready; `foreign_` is the vocabulary of token ids in requests."""
    return InputTokenizer(
        model.tokenizer,
        model.layout,
        longest=model.longest,
        truncate=function_options(load).truncate,
        size=model.size,
        foreign=foreign_,
    )


def function_options(load: Load) -> EmbeddingsOptions:
    """Return the manifest's options of the function."""
    return msgspec.msgpack.decode(load.function_options, type=EmbeddingsOptions)


def vocabulary(load: Load) -> openai_token_ids.OpenAITokenIds | None:
    """Return the vocabulary of token ids in requests, None for the model's own; raises `LoadFailed`."""
    return openai_token_ids.load(function_options(load).token_ids, Path(load.base))


def _sparse(outputs: Sequence[SentenceOutput]) -> Sparse:
    found = [one.sparse for one in outputs if one.sparse is not None]
    return Sparse(
        counts=[len(ids) for ids, _ in found],
        indices=b"".join(ids.astype("<i4", copy=False).tobytes() for ids, _ in found),
        values=b"".join(weights.astype("<f4", copy=False).tobytes() for _, weights in found),
    )


def _rows(outputs: Sequence[SentenceOutput]) -> Rows:
    found = [one.colbert for one in outputs if one.colbert is not None]
    return Rows(
        counts=[len(rows) for rows in found],
        data=b"".join(rows.astype("<f4", copy=False).tobytes() for rows in found),
        dimension=int(found[0].shape[1]),
    )
