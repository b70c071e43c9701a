"""Renders scores as the JSON of each dialect: best first, at most `top_n`, with or without the documents."""

from __future__ import annotations

import uuid
from typing import Any, Literal

import msgspec

from functions.rerank.api import Scores
from functions.rerank.request_dialects import RerankBody

_SEARCH_UNIT = 100
"""Documents of one search unit, as Cohere counts them."""


class RerankResult(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One document."""

    index: int
    """Its index in the request."""
    relevance_score: float
    document: Any = None
    """As it was sent, a text as `{"text": …}`; for clients of Voyage the text itself."""


class RerankUsage(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens of the query with each document."""

    prompt_tokens: int
    total_tokens: int


class RerankMeta(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The `meta` object of Cohere's API."""

    api_version: dict[str, str]
    billed_units: dict[str, int]
    tokens: dict[str, int]
    warnings: list[str] | None = None
    """Which documents were truncated."""


class RerankAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """The body of the response; clients of TEI get a bare list of `{index, score, text}` instead."""

    id: str
    object: Literal["list"] = "list"
    model: str
    results: msgspec.Raw | list[RerankResult]
    """Best first; equally good ones in the order of the request."""
    data: msgspec.Raw | list[RerankResult]
    """The same, by the name that clients of Voyage and OpenAI know."""
    usage: RerankUsage
    meta: RerankMeta


def render(body: RerankBody, scores: Scores, *, cohere2: bool) -> bytes:
    """Return the body of the response."""
    order = sorted(range(len(scores.scores)), key=lambda at: -scores.scores[at])[: body.result_count]
    if body.tei:
        return msgspec.json.encode([_tei(body, at, scores.scores[at]) for at in order])
    shown = not cohere2 if body.return_documents is None else body.return_documents
    results = [
        RerankResult(
            index=at,
            relevance_score=scores.scores[at],
            document=_document(body, body.sent_documents[at]) if shown else None,
        )
        for at in order
    ]
    encoded = msgspec.Raw(msgspec.json.encode(results))
    tokens = scores.usage.prompt_tokens
    answer = RerankAnswer(
        id=f"rerank-{uuid.uuid4().hex}",
        model=body.model or scores.model,
        results=encoded,
        data=encoded,
        usage=RerankUsage(prompt_tokens=tokens, total_tokens=tokens),
        meta=RerankMeta(
            api_version={"version": "2" if cohere2 else "1"},
            billed_units={"search_units": -(-len(scores.scores) // _SEARCH_UNIT)},
            tokens={"input_tokens": tokens, "output_tokens": 0},
            warnings=_warnings(scores),
        ),
    )
    return msgspec.json.encode(answer)


def _tei(body: RerankBody, at: int, score: float) -> dict[str, Any]:
    item: dict[str, Any] = {"index": at, "score": score}
    if body.return_text or body.return_documents:
        item["text"] = body.sent_documents[at]
    return item


def _document(body: RerankBody, document: Any) -> Any:
    return {"text": document} if isinstance(document, str) and not body.voyage else document


def _warnings(scores: Scores) -> list[str] | None:
    if not scores.truncated:
        return None
    few = ", ".join(map(str, scores.truncated[:20])) + (", …" if len(scores.truncated) > 20 else "")
    taken = f"the model takes {scores.longest} tokens of query and document together"
    return [f"the ends of {len(scores.truncated)} documents were not read, {taken}: {few}"]
