"""The request and answer of the rerank operation: a query with documents, and a score for each.

The JSON that clients send and read is in `functions.rerank.request_dialects` and `functions.rerank.response`.
"""

from __future__ import annotations

import msgspec

from host.function import Usage

DOCUMENTS_MAX = 10_000
"""Documents of one request, and chunks of all of them together, as at Cohere."""


class RerankRequest(msgspec.Struct, kw_only=True, frozen=True):
    """A query and the documents to score."""

    model: str
    """The manifest's name or an alias of it; empty for the one reranker there is."""
    query: str
    documents: list[str]
    field: str = "documents"
    """The client's name of the field, for messages."""
    instruction: str | None = None
    """What to look for, for models whose prompt has a place for it."""
    truncate: bool | None = None
    """Cut over-long documents instead of refusing them; default: the manifest's `options.truncate`."""
    max_tokens_per_doc: int | None = None
    """Read at most so many tokens of each document."""
    max_chunks_per_doc: int | None = None
    """Read over-long documents in up to so many pieces, of which the best one counts."""
    raw_scores: bool = False
    """Return logits instead of scores."""


class Scores(msgspec.Struct, kw_only=True, frozen=True):
    """The scores of one request."""

    model: str = ""
    """The manifest's name."""
    scores: list[float]
    """In the order of the documents."""
    truncated: list[int] = []
    """Indexes of documents whose end was not read."""
    longest: int = 0
    """The model's limit for query and document together, in tokens."""
    usage: Usage
    """Tokens of all pairs, special ones and prompts included."""
