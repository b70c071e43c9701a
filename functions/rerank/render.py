"""Scores as the JSON of each dialect: best first, the best few, with or without their documents. It knows no model."""

from __future__ import annotations

import uuid
from typing import Any, Literal

import msgspec

from functions.rerank.api import Scores
from functions.rerank.request import RerankBody

_SEARCH_UNIT = 100
"""Documents of one search unit, as Cohere counts them."""


class RerankResult(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One document."""

    index: int
    """Its place in the request."""
    relevance_score: float
    document: Any = None
    """As it was sent, a text as `{"text": …}`; for clients of Voyage the text itself."""


class RerankUsage(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens of the query with each document."""

    prompt_tokens: int
    total_tokens: int


class RerankMeta(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What Cohere's clients read."""

    api_version: dict[str, str]
    billed_units: dict[str, int]
    tokens: dict[str, int]
    warnings: list[str] | None = None
    """What was not read of the documents."""


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


def render(body: RerankBody, found: Scores, *, cohere2: bool) -> bytes:
    """Return the body of the response."""
    order = sorted(range(len(found.scores)), key=lambda at: -found.scores[at])[: body.most]
    if body.tei:
        return msgspec.json.encode([_tei(body, at, found.scores[at]) for at in order])
    shown = not cohere2 if body.return_documents is None else body.return_documents
    results = [
        RerankResult(
            index=at, relevance_score=found.scores[at], document=_document(body, body.given[at]) if shown else None
        )
        for at in order
    ]
    encoded = msgspec.Raw(msgspec.json.encode(results))
    tokens = found.usage.prompt_tokens
    answer = RerankAnswer(
        id=f"rerank-{uuid.uuid4().hex}",
        model=body.model or found.model,
        results=encoded,
        data=encoded,
        usage=RerankUsage(prompt_tokens=tokens, total_tokens=tokens),
        meta=RerankMeta(
            api_version={"version": "2" if cohere2 else "1"},
            billed_units={"search_units": -(-len(found.scores) // _SEARCH_UNIT)},
            tokens={"input_tokens": tokens, "output_tokens": 0},
            warnings=_warnings(found),
        ),
    )
    return msgspec.json.encode(answer)


def _tei(body: RerankBody, at: int, score: float) -> dict[str, Any]:
    item: dict[str, Any] = {"index": at, "score": score}
    if body.return_text or body.return_documents:
        item["text"] = body.given[at]
    return item


def _document(body: RerankBody, given: Any) -> Any:
    return {"text": given} if isinstance(given, str) and not body.voyage else given


def _warnings(found: Scores) -> list[str] | None:
    if not found.cut:
        return None
    few = ", ".join(map(str, found.cut[:20])) + (", …" if len(found.cut) > 20 else "")
    taken = f"the model takes {found.longest} tokens of query and document together"
    return [f"the ends of {len(found.cut)} documents were not read, {taken}: {few}"]
