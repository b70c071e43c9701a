"""The request body in the dialects of Cohere, Jina, Voyage and TEI, converted to a `RerankRequest`.

Errors name the fields as the client sent them.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from functions.rerank.api import DOCUMENTS_MAX, RerankRequest
from functions.rerank.documents import document_texts
from host.errors import InvalidRequest, UnsupportedParameter
from host.request_checks import check_count, check_exclusive, check_range

_NUMBER_MAX = 1 << 40
"""More tokens than any document has, and few enough for an integer of MessagePack."""

Documents = Annotated[
    list[Any],
    msgspec.Meta(
        description="Texts, or objects with a field `text` or the `rank_fields`.",
        extra_json_schema={"items": {"type": ["string", "object"]}},
    ),
]
"""Items are checked in `functions.rerank.documents`, whose errors name the item."""


class RerankBody(msgspec.Struct, kw_only=True, frozen=True):
    """The body of `POST /v1/rerank`. `null` is the same as absent, and unknown fields are ignored."""

    model: str | None = None
    """The manifest's name or an alias of it; may be left out where one reranker is served."""
    query: str
    documents: Documents | None = None
    """What to rank, at most 10,000."""
    texts: Documents | None = None
    """The same at TEI, whose clients get a bare list."""
    top_n: int | None = None
    """Return the best so many; default: all."""
    top_k: int | None = None
    """The same at Voyage, whose clients get documents as plain texts."""
    return_documents: bool | None = None
    """Return documents beside their scores; default: true, but false at `/v2/rerank` and for TEI."""
    return_text: bool | None = None
    """The same at TEI."""
    rank_fields: list[str] | None = None
    """The fields of objects that are read, in this order; default: `text`."""
    max_tokens_per_doc: int | None = None
    """Read so many tokens of each document."""
    max_chunks_per_doc: int | None = None
    """Read over-long documents in up to so many pieces; a document's score is its best piece's."""
    truncate: bool | None = None
    """Cut over-long documents instead of refusing them; default: what the manifest's `options.truncate` says."""
    truncation: bool | None = None
    """The same at Voyage."""
    raw_scores: bool | None = None
    """Return logits; default: false."""
    instruction: str | None = None
    """What to look for, for models whose prompt has a place for it."""
    priority: Any = None
    """Accepted and ignored."""
    truncate_prompt_tokens: Any = None
    """Not served."""
    truncation_side: str | None = None
    """Only `right`, a document's end, is cut."""
    truncation_direction: str | None = None
    """The same at TEI."""
    max_tokens_per_query: Any = None
    """Not served."""

    @property
    def tei(self) -> bool:
        """Whether the client speaks TEI's dialect."""
        return self.texts is not None

    @property
    def voyage(self) -> bool:
        """Whether the client speaks Voyage's dialect."""
        return self.top_k is not None or self.truncation is not None

    @property
    def sent_documents(self) -> list[Any]:
        """The documents as they were sent, texts or objects."""
        return self.texts if self.texts is not None else self.documents or []

    @property
    def result_count(self) -> int:
        """How many results to return."""
        limit = self.top_n if self.top_n is not None else self.top_k
        return len(self.sent_documents) if limit is None else min(limit, len(self.sent_documents))


def to_request(body: RerankBody, *, cohere2: bool) -> RerankRequest:
    """Convert a body; raises `InvalidRequest`. `cohere2` is for a request to `/v2/rerank`."""
    _check(body)
    field = "texts" if body.tei else "documents"
    truncate = body.truncate if body.truncate is not None else body.truncation
    if truncate is None and cohere2 and body.max_chunks_per_doc is None:
        truncate = True  # as Cohere documents that endpoint; the answer reports it in `meta.warnings`
    return RerankRequest(
        model=body.model or "",
        query=body.query,
        documents=document_texts(body.sent_documents, body.rank_fields, field),
        field=field,
        instruction=body.instruction,
        truncate=truncate,
        max_tokens_per_doc=_capped(body.max_tokens_per_doc),
        max_chunks_per_doc=_capped(body.max_chunks_per_doc),
        raw_scores=bool(body.raw_scores),
    )


def check(request: RerankRequest) -> None:
    """Raise `InvalidRequest` for a request that no model could answer."""
    field = request.field
    if not request.query.strip():
        raise InvalidRequest("query is empty", param="query")
    check_count(request.documents, field, DOCUMENTS_MAX, "document")
    for name in ("max_tokens_per_doc", "max_chunks_per_doc"):
        check_range(getattr(request, name), name, 1)
    for at, text in enumerate(request.documents):
        if not text.strip():
            raise InvalidRequest(f"{field}[{at}] is empty", param=f"{field}[{at}]")


def _check(body: RerankBody) -> None:
    if body.documents is None and body.texts is None:
        raise InvalidRequest("documents is missing: a list of texts or objects", param="documents")
    for first, second in (("documents", "texts"), ("top_n", "top_k"), ("truncate", "truncation")):
        check_exclusive(body, first, second)
    for name in ("top_n", "top_k"):
        check_range(getattr(body, name), name, 1, hint="; leave it out for all")
    if body.instruction is not None and not body.instruction.strip():
        raise InvalidRequest("instruction is empty: leave it out for the model's own", param="instruction")
    for name in ("truncate_prompt_tokens", "max_tokens_per_query"):
        if getattr(body, name) is not None:
            raise UnsupportedParameter(
                f"{name} is not served: documents are cut by truncate and max_tokens_per_doc", param=name
            )
    for name in ("truncation_side", "truncation_direction"):
        side = getattr(body, name)
        if side is not None and side.lower() != "right":
            raise UnsupportedParameter(f"{name} must be 'right': only a document's end is cut", param=name)


def _capped(number: int | None) -> int | None:
    """Limit a number of tokens to one that MessagePack can encode."""
    return None if number is None else min(number, _NUMBER_MAX)
