"""The loaded model of the embeddings function, on any engine: tokenises inputs and packs vectors into answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from functions.embeddings import openai_token_ids, output_format
from functions.embeddings.api import EmbeddingsRequest, EmbeddingType, SparseVectors, TokenVectors, Vectors
from functions.embeddings.inputs import Input, parse_inputs
from functions.embeddings.openai_token_ids import OpenAITokenIds
from functions.embeddings.options import EmbeddingsOptions
from functions.embeddings.tokenize import EmbeddingTokenizer, InputTokenizer
from functions.engines.batching.item import Item
from functions.engines.checkpoint.sentence.layout import Layout
from functions.engines.checkpoint.sentence.output import SentenceOutput
from host.errors import InvalidRequest, NotFinite, UnsupportedParameter
from host.function import Instance, InstanceInfo, Load, Usage

CAPACITY = 256
"""Concurrent requests. The batcher merges them, so more would only wait here instead of in the host."""
_EPSILON = 1e-12

Vector = npt.NDArray[np.float32]


class EmbeddingsInstance(Instance):
    """A loaded embedding model. Subclasses compute the vectors."""

    def __init__(self, name: str, tokenizer: InputTokenizer) -> None:
        """`name` is the manifest's; `tokenizer` is for all requests, unless `_tokenizer_for` returns another."""
        self._name = name
        self._tokenizer = tokenizer

    async def answer(self, request: EmbeddingsRequest) -> Vectors:
        """Embed each input. Raises `InvalidRequest`, `InputTooLong`, and `NotFinite` naming the input."""
        tokenizer = self._tokenizer_for(request)
        types = _embedding_types(request, tokenizer.layout)
        _check_normalized(request, types, tokenizer.layout)
        size = tokenizer.dimension(request) if "dense" in types else 0
        try:
            items, outputs = await self._embed(request, parse_inputs(request.input), types)
        except NotFinite as error:
            param = f"input[{error.extra['index']}]" if "index" in error.extra else "input"
            raise NotFinite(f"{param}: {error.message}", param=param, extra=error.extra) from error
        return Vectors(
            model=self._name,
            data=_pack_dense([one.dense for one in outputs if one.dense is not None], size, tokenizer.layout),
            dimension=size,
            usage=Usage(prompt_tokens=sum(len(item.ids) for item in items)),
            sparse=_pack_sparse(outputs) if "sparse" in types else None,
            colbert=_pack_colbert(outputs) if "colbert" in types else None,
        )

    def info(self) -> InstanceInfo:
        """Return the capacity, the longest input in tokens, and how vectors are computed."""
        return InstanceInfo(capacity=CAPACITY, context=self._longest(), detail=self._detail())

    def _tokenizer_for(self, request: EmbeddingsRequest) -> InputTokenizer:
        """Return the tokenizer for a request; raises `InvalidRequest` where the model has none for its input type."""
        return self._tokenizer

    @abstractmethod
    async def _embed(
        self, request: EmbeddingsRequest, inputs: Sequence[Input], types: tuple[EmbeddingType, ...]
    ) -> tuple[Sequence[Item], Sequence[SentenceOutput]]:
        """Return the inputs as sequences, and the output of each, in their order."""

    @abstractmethod
    def _longest(self) -> int:
        """Return the most tokens of an input."""

    @abstractmethod
    def _detail(self) -> dict[str, Any]:
        """Return how vectors are computed, for `InstanceInfo.detail`."""


def _embedding_types(request: EmbeddingsRequest, layout: Layout) -> tuple[EmbeddingType, ...]:
    """Return the types of vectors to compute; raises `InvalidRequest` for types that the model does not have."""
    types, available = output_format.embedding_types(request), layout.kinds
    missing = next((one for one in types if one not in available), None)
    if missing is None:
        return types
    why = f" ({layout.missing[missing]})" if missing in layout.missing else ""
    raise InvalidRequest(
        f"this model makes no {missing} vectors{why}; send embedding_type: {' or '.join(map(repr, available))}",
        param="embedding_type",
    )


def _check_normalized(request: EmbeddingsRequest, types: tuple[EmbeddingType, ...], layout: Layout) -> None:
    """Raise `UnsupportedParameter` where a request requires vectors of length 1, and the model's are not."""
    for name in ("normalized", "normalize"):
        if getattr(request, name) and "dense" in types and not layout.normalizes:
            raise UnsupportedParameter(
                f"{name} is true, and this model's vectors are not scaled to length 1; leave it out", param=name
            )


class EmbeddingModel(Protocol):
    """The part of a loaded model that an `InputTokenizer` needs."""

    layout: Layout
    longest: int
    size: int

    @property
    def tokenizer(self) -> EmbeddingTokenizer:
        """The engine's own tokenizer."""


def create_tokenizer(model: EmbeddingModel, load: Load, token_ids: OpenAITokenIds | None) -> InputTokenizer:
    """Return the tokenizer of a model's inputs; `token_ids` decodes token ids in requests, None for the model's own."""
    return InputTokenizer(
        model.tokenizer,
        model.layout,
        longest=model.longest,
        truncate=load.task_options(EmbeddingsOptions).truncate,
        size=model.size,
        token_ids=token_ids,
    )


def load_token_ids(load: Load) -> OpenAITokenIds | None:
    """Return the vocabulary of token ids in requests, None for the model's own; raises `LoadFailed`."""
    return openai_token_ids.load(load.task_options(EmbeddingsOptions).token_ids, Path(load.base))


def _pack_dense(vectors: list[Vector], size: int, layout: Layout) -> bytes:
    """Return the vectors as little-endian float32, cut to `size` and normalised again if they were before."""
    if not vectors:
        return b""
    rows = np.stack(vectors)
    if size < rows.shape[1]:
        rows = rows[:, :size]
        if layout.normalizes:
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _EPSILON)
    return rows.astype("<f4", copy=False).tobytes()


def _pack_sparse(outputs: Sequence[SentenceOutput]) -> SparseVectors:
    vectors = [one.sparse for one in outputs if one.sparse is not None]
    return SparseVectors(
        counts=[len(ids) for ids, _ in vectors],
        indices=b"".join(ids.astype("<i4", copy=False).tobytes() for ids, _ in vectors),
        values=b"".join(weights.astype("<f4", copy=False).tobytes() for _, weights in vectors),
    )


def _pack_colbert(outputs: Sequence[SentenceOutput]) -> TokenVectors:
    matrices = [one.colbert for one in outputs if one.colbert is not None]
    return TokenVectors(
        counts=[len(rows) for rows in matrices],
        data=b"".join(rows.astype("<f4", copy=False).tobytes() for rows in matrices),
        dimension=int(matrices[0].shape[1]),
    )
