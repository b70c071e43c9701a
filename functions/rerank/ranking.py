"""Scores the documents of a request: cuts or splits those that do not fit, and takes the best chunk of each."""

from __future__ import annotations

import msgspec

from functions.engines.batching import length_guard
from functions.engines.batching.item import Ids
from functions.engines.batching.token_windows import windows
from functions.rerank.api import DOCUMENTS_MAX, RerankRequest, Scores
from functions.rerank.options import RerankOptions
from functions.rerank.scorer import RelevanceScore, Scorer, TokenizedRequest
from host.errors import InputTooLong, InvalidRequest, NotFinite
from host.function import Usage

_OVERLAP = 8
"""Chunks share 1/8 of their length, so that an answer is not split between two."""
_HINT = "send truncate: true to have it cut, or max_chunks_per_doc to have it read in pieces"


class Chunk(msgspec.Struct, frozen=True):
    """A part of a document."""

    document: int
    """The document's index."""
    ids: Ids


async def rank(scorer: Scorer, request: RerankRequest, options: RerankOptions) -> Scores:
    """Return the documents' scores.

    Raises `InvalidRequest`, `InputTooLong` and `NotFinite`, which name the field and its index.
    """
    instruction = request.instruction if request.instruction is not None else options.instruction
    length_guard.check(request.query, scorer.longest, "query")
    length_guard.check(instruction or "", scorer.longest, "instruction")
    documents = _pre_truncate(request, options, scorer.longest)
    tokenized = await scorer.tokenize(request.query, documents, instruction)
    if tokenized.document_tokens < 1:
        raise InputTooLong(
            f"query is too large: {tokenized.overhead} tokens are read with each document, "
            f"the model takes {scorer.longest}",
            param="query",
            extra={"n_prompt_tokens": tokenized.overhead, "n_ctx": scorer.longest},
        )
    chunks, truncated = _split(tokenized, request, options, scorer.longest)
    pairs = enumerate(zip(documents, request.documents, strict=True))
    truncated = sorted({*truncated, *(at for at, (kept, whole) in pairs if len(kept) < len(whole))})
    relevance = await _score(scorer, tokenized, chunks, request.field)
    scores = [float("-inf")] * len(request.documents)
    for chunk, one in zip(chunks, relevance, strict=True):
        scores[chunk.document] = max(scores[chunk.document], one.logit if request.raw_scores else one.score)
    return Scores(scores=scores, truncated=truncated, longest=scorer.longest, usage=_usage(tokenized, chunks))


async def _score(scorer: Scorer, request: TokenizedRequest, chunks: list[Chunk], field: str) -> list[RelevanceScore]:
    """Return the chunks' scores; `NotFinite` names the document."""
    try:
        return await scorer.score(request, [chunk.ids for chunk in chunks])
    except NotFinite as error:
        if "index" not in error.extra:
            raise
        at = chunks[error.extra["index"]].document
        param = f"{field}[{at}]"
        raise NotFinite(f"{param}: {error.message}", param=param, extra={"index": at}) from error


def _limits(request: RerankRequest, options: RerankOptions) -> tuple[bool, int | None]:
    """Return whether documents may be cut, and into how many chunks they may be split."""
    max_chunks = request.max_chunks_per_doc if request.max_chunks_per_doc is not None else options.chunks
    return options.truncate if request.truncate is None else request.truncate, max_chunks


def _pre_truncate(request: RerankRequest, options: RerankOptions, longest: int) -> list[str]:
    """Cut documents that are far too long before they are tokenised; raises `InputTooLong` where it is not allowed."""
    truncate, max_chunks = _limits(request, options)
    if truncate or max_chunks or request.max_tokens_per_doc is not None:
        return [length_guard.head(text, longest * (max_chunks or 1)) for text in request.documents]
    for at, text in enumerate(request.documents):
        length_guard.check(text, longest, f"{request.field}[{at}]", _HINT)
    return request.documents


def _split(
    tokenized: TokenizedRequest, request: RerankRequest, options: RerankOptions, longest: int
) -> tuple[list[Chunk], list[int]]:
    """Return the chunks in the documents' order, and the indexes of documents whose end is in none."""
    truncate, max_chunks = _limits(request, options)
    chunks: list[Chunk] = []
    truncated: list[int] = []
    for at, ids in enumerate(tokenized.documents):
        limit = min(tokenized.document_tokens, request.max_tokens_per_doc or tokenized.document_tokens)
        spans = windows(len(ids), limit, limit // _OVERLAP) if max_chunks else [(0, len(ids))]
        if not max_chunks and len(ids) > limit:
            if limit == tokenized.document_tokens and not truncate:
                raise _too_long(f"{request.field}[{at}]", tokenized.overhead + len(ids), longest)
            spans = [(0, limit)]
        spans = spans[: max_chunks or 1]
        if spans[-1][1] < len(ids):
            truncated.append(at)
        chunks += [Chunk(at, ids[begin:end]) for begin, end in spans]
    if len(chunks) > max(DOCUMENTS_MAX, len(tokenized.documents)):
        raise InvalidRequest(
            f"{request.field} come to {len(chunks)} pieces, at most {DOCUMENTS_MAX} are read at once: "
            "send fewer documents, or a smaller max_chunks_per_doc",
            param="max_chunks_per_doc",
        )
    return chunks, truncated


def _too_long(param: str, tokens: int, longest: int) -> InputTooLong:
    return InputTooLong(
        f"{param} is too large: with the query it has {tokens} tokens, the model takes {longest}; {_HINT}",
        param=param,
        extra={"n_prompt_tokens": tokens, "n_ctx": longest},
    )


def _usage(request: TokenizedRequest, chunks: list[Chunk]) -> Usage:
    tokens = sum(request.overhead + len(chunk.ids) for chunk in chunks)
    return Usage(prompt_tokens=tokens, cached_tokens=max(0, len(chunks) - 1) * request.shared_tokens)
