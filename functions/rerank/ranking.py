"""A request on its way through a scorer: documents cut or taken apart to fit beside the query, and a score for each.

A document's score is its best piece's. It knows tokens and marks, and no engine.
"""

from __future__ import annotations

import msgspec

from functions.engines.batching import length_guard
from functions.engines.batching.item import Ids
from functions.engines.batching.windows import windows
from functions.rerank.api import DOCUMENTS_MAX, RerankRequest, Scores
from functions.rerank.options import RerankOptions
from functions.rerank.scorer import Mark, Reading, Scorer
from host.errors import InputTooLong, InvalidRequest, NotFinite
from host.function import Usage

_OVERLAP = 8
"""Pieces share an eighth of their length, so that what answers is not torn apart by a seam."""
_HINT = "send truncate: true to have it cut, or max_chunks_per_doc to have it read in pieces"


class Piece(msgspec.Struct, frozen=True):
    """Some of a document."""

    document: int
    ids: Ids


async def rank(scorer: Scorer, request: RerankRequest, options: RerankOptions) -> Scores:
    """Return the documents' scores.

    Raises `InvalidRequest`, `InputTooLong` and `NotFinite`, which name the field and its index.
    """
    instruction = request.instruction if request.instruction is not None else options.instruction
    length_guard.check(request.query, scorer.longest, "query")
    length_guard.check(instruction or "", scorer.longest, "instruction")
    documents = _brief(request, options, scorer.longest)
    reading = await scorer.read(request.query, documents, instruction)
    if reading.room < 1:
        raise InputTooLong(
            f"query is too large: {reading.frame} tokens are read with each document, the model takes {scorer.longest}",
            param="query",
            extra={"n_prompt_tokens": reading.frame, "n_ctx": scorer.longest},
        )
    pieces, cut = _pieces(reading, request, options, scorer.longest)
    ends = zip(documents, request.documents, strict=True)
    cut = sorted({*cut, *(at for at, (kept, whole) in enumerate(ends) if len(kept) < len(whole))})
    marks = await _marks(scorer, reading, pieces, request.field)
    scores = [float("-inf")] * len(request.documents)
    for piece, mark in zip(pieces, marks, strict=True):
        scores[piece.document] = max(scores[piece.document], mark.logit if request.raw_scores else mark.score)
    return Scores(scores=scores, cut=cut, longest=scorer.longest, usage=_usage(reading, pieces))


async def _marks(scorer: Scorer, reading: Reading, pieces: list[Piece], field: str) -> list[Mark]:
    """Return the pieces' marks; numbers that are not finite are told of with the document that spoils them."""
    try:
        return await scorer.marks(reading, [piece.ids for piece in pieces])
    except NotFinite as error:
        if "index" not in error.extra:
            raise
        at = pieces[error.extra["index"]].document
        place = f"{field}[{at}]"
        raise NotFinite(f"{place}: {error.message}", param=place, extra={"index": at}) from error


def _wanted(request: RerankRequest, options: RerankOptions) -> tuple[bool, int | None]:
    """Return whether documents may be cut, and in how many pieces they are read."""
    chunks = request.max_chunks_per_doc if request.max_chunks_per_doc is not None else options.chunks
    return options.truncate if request.truncate is None else request.truncate, chunks


def _brief(request: RerankRequest, options: RerankOptions, longest: int) -> list[str]:
    """Return the documents without what surely is not read, before a tokenizer spends seconds on it."""
    truncate, chunks = _wanted(request, options)
    if truncate or chunks or request.max_tokens_per_doc is not None:
        return [length_guard.head(text, longest * (chunks or 1)) for text in request.documents]
    for at, text in enumerate(request.documents):
        length_guard.check(text, longest, f"{request.field}[{at}]", _HINT)
    return request.documents


def _pieces(
    reading: Reading, request: RerankRequest, options: RerankOptions, longest: int
) -> tuple[list[Piece], list[int]]:
    """Return the pieces in the documents' order, and the documents whose end is in none."""
    truncate, chunks = _wanted(request, options)
    found: list[Piece] = []
    cut: list[int] = []
    for at, ids in enumerate(reading.parts):
        limit = min(reading.room, request.max_tokens_per_doc or reading.room)
        spans = windows(len(ids), limit, limit // _OVERLAP) if chunks else [(0, len(ids))]
        if not chunks and len(ids) > limit:
            if limit == reading.room and not truncate:
                raise _too_long(f"{request.field}[{at}]", reading.frame + len(ids), longest)
            spans = [(0, limit)]
        spans = spans[: chunks or 1]
        if spans[-1][1] < len(ids):
            cut.append(at)
        found += [Piece(at, ids[begin:end]) for begin, end in spans]
    if len(found) > max(DOCUMENTS_MAX, len(reading.parts)):
        raise InvalidRequest(
            f"{request.field} come to {len(found)} pieces, at most {DOCUMENTS_MAX} are read at once: "
            "send fewer documents, or a smaller max_chunks_per_doc",
            param="max_chunks_per_doc",
        )
    return found, cut


def _too_long(place: str, tokens: int, longest: int) -> InputTooLong:
    return InputTooLong(
        f"{place} is too large: with the query it has {tokens} tokens, the model takes {longest}; {_HINT}",
        param=place,
        extra={"n_prompt_tokens": tokens, "n_ctx": longest},
    )


def _usage(reading: Reading, pieces: list[Piece]) -> Usage:
    tokens = sum(reading.frame + len(piece.ids) for piece in pieces)
    return Usage(prompt_tokens=tokens, cached_tokens=max(0, len(pieces) - 1) * reading.once)
