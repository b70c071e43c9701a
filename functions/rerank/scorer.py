"""The interface between ranking and the scoring methods: tokenised requests in, a score for each document out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from functions.engines.batching.item import Ids


class RelevanceScore(msgspec.Struct, frozen=True):
    """How well a document, or a chunk of one, answers the query."""

    logit: float
    score: float


class TokenizedRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A query and its documents as tokens."""

    documents: list[Ids]
    """Each document's own tokens, which may be cut or split into chunks."""
    overhead: int
    """Tokens of each sequence besides the document's own: query, prompt, special ones."""
    document_tokens: int
    """The most tokens of a document that fit into a sequence."""
    shared_tokens: int = 0
    """Tokens of the overhead that are computed once for all documents."""
    state: Any = None
    """What the scorer keeps for itself."""


class RerankTokenizer(Protocol):
    """The part of a tokenizer that every scorer needs."""

    prefix: list[int]
    suffix: list[int]

    async def encode(self, texts: Sequence[str]) -> list[Ids]: ...  # noqa: D102


class Scorer(Protocol):
    """A loaded model that scores documents."""

    longest: int
    """The most tokens of a sequence."""

    async def tokenize(self, query: str, documents: Sequence[str], instruction: str | None) -> TokenizedRequest:
        """Tokenise a request; raises `UnsupportedParameter` for an instruction that the model has no place for."""

    async def score(self, request: TokenizedRequest, chunks: Sequence[Ids]) -> list[RelevanceScore]:
        """Score chunks of documents, in their order; raises `QueueFull`, `ShuttingDown`, `OutOfMemory`, `NotFinite`."""

    def detail(self) -> dict[str, Any]:
        """Return the method and what is known of the model, for `InstanceInfo.detail`."""

    def close(self) -> None:
        """End the threads."""


async def encode_without_special(tokenizer: RerankTokenizer, texts: Sequence[str]) -> list[Ids]:
    """Return the tokens of each text without the special ones around it."""
    begin, end = len(tokenizer.prefix), len(tokenizer.suffix)
    return [ids[begin : len(ids) - end] for ids in await tokenizer.encode(texts)]


def split_common_prefix(prefix: Sequence[int], sequences: Sequence[Ids]) -> tuple[list[int], list[Ids]]:
    """Return the part of `prefix` that all sequences begin with, and the rest of each sequence.

    A tokenizer may merge the end of a prompt with the text after it, so both are tokenised as one text and split here.
    """
    start = np.array(prefix, dtype=np.int32)
    keep = len(start)
    for ids in sequences:
        least = min(keep, len(ids))
        differs = np.flatnonzero(ids[:least] != start[:least])
        keep = int(differs[0]) if len(differs) else least
    return list(prefix[:keep]), [ids[keep:] for ids in sequences]
