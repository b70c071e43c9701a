"""What goes in and out of a reranker: a query with its documents' texts, and a score for each of them in their order.

What clients send and read is in `functions.rerank.body` and `functions.rerank.render`.
"""

from __future__ import annotations

import msgspec

from host.function import Usage

DOCUMENTS_MAX = 10_000
"""Documents of one request, and chunks of all of them together, as at Cohere."""


class RerankRequest(msgspec.Struct, kw_only=True, frozen=True):
    """What a model is asked."""

    model: str
    """The manifest's name or an alias of it; empty for the one reranker there is."""
    query: str
    documents: list[str]
    field: str = "documents"
    """What the client calls its documents, for messages."""
    instruction: str | None = None
    """What to look for, for models whose prompt has a place for it."""
    truncate: bool | None = None
    """Cut over-long documents instead of refusing them; default: the manifest's `options.truncate`."""
    max_tokens_per_doc: int | None = None
    """Read so many tokens of each document."""
    max_chunks_per_doc: int | None = None
    """Read over-long documents in up to so many pieces, of which the best one counts."""
    raw_scores: bool = False
    """Return logits instead of what becomes of them."""


class Scores(msgspec.Struct, kw_only=True, frozen=True):
    """The answer."""

    model: str = ""
    """The manifest's name."""
    scores: list[float]
    """In the order of the documents."""
    cut: list[int] = []
    """Documents of which the end was not read."""
    longest: int = 0
    """Tokens of query and document together that the model takes."""
    usage: Usage
    """Tokens of all pairs, special ones and prompts included."""
