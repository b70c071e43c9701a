"""Scores by an embedding model: the cosine similarity of query and document, each after the model's prompt for it.

Fast, and less exact than models that read query and document together. Used only where the manifest names it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from functions.engines.batching.item import Ids, Item
from functions.rerank.scorer import (
    RelevanceScore,
    RerankTokenizer,
    TokenizedRequest,
    encode_without_special,
    split_common_prefix,
)
from host.errors import InputTooLong, NotFinite, UnsupportedParameter

Vector = npt.NDArray[np.float32]

_QUERY_PROMPTS = ("query", "search_query")
_DOCUMENT_PROMPTS = ("document", "search_document", "passage", "corpus")
_EPSILON = 1e-12


class CosineScorer:
    """See `functions.rerank.scorer.Scorer`. `vectors` embeds sequences; `prompts` are texts by name."""

    def __init__(
        self,
        vectors: Callable[[Sequence[Item]], Awaitable[list[Vector]]],
        tokenizer: RerankTokenizer,
        *,
        longest: int,
        prompts: Mapping[str, str],
        default: str | None,
        detail: dict[str, Any],
        close: Callable[[], None],
    ) -> None:
        """`default` names the prompt for queries and documents that have none of their own."""
        self.longest = longest
        self._vectors = vectors
        self._tokenizer = tokenizer
        self._query_prompt = _prompt(prompts, _QUERY_PROMPTS, default)
        self._document_prompt = _prompt(prompts, _DOCUMENT_PROMPTS, default)
        self._detail = detail
        self._close = close

    async def tokenize(self, query: str, documents: Sequence[str], instruction: str | None) -> TokenizedRequest:
        """Tokenise query and documents after their prompts; raises `InputTooLong` for the query."""
        if instruction is not None:
            raise UnsupportedParameter(
                "instruction: embedding models take none; options.prompts has what stands before a query",
                param="instruction",
            )
        prompts = self._query_prompt, self._document_prompt
        texts = [prompts[0], prompts[0] + query, prompts[1], *(prompts[1] + text for text in documents)]
        query_prompt, whole_query, document_prompt, *wholes = await encode_without_special(self._tokenizer, texts)
        special = len(self._tokenizer.prefix) + len(self._tokenizer.suffix)
        if special + len(whole_query) > self.longest:
            count = special + len(whole_query)
            raise InputTooLong(
                f"query is too large: it has {count} tokens, the model takes {self.longest}; shorten it",
                param="query",
                extra={"n_prompt_tokens": count, "n_ctx": self.longest},
            )
        query_start, (query_ids,) = split_common_prefix(query_prompt.tolist(), [whole_query])
        start, parts = split_common_prefix(document_prompt.tolist(), wholes)
        overhead = special + len(start)
        return TokenizedRequest(
            documents=parts,
            overhead=overhead,
            document_tokens=self.longest - overhead,
            state=(self._item(query_start, query_ids), start),
        )

    async def score(self, request: TokenizedRequest, chunks: Sequence[Ids]) -> list[RelevanceScore]:
        """Score each chunk: the cosine is both logit and score."""
        query, start = request.state
        try:
            first, *others = await self._vectors([query, *(self._item(start, chunk) for chunk in chunks)])
        except NotFinite as error:
            raise _with_chunk_index(error) from error
        rows = np.stack(others).astype(np.float64)
        lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(first.astype(np.float64))
        cosines = rows @ first.astype(np.float64) / np.maximum(lengths, _EPSILON)
        return [RelevanceScore(float(cosine), float(cosine)) for cosine in cosines]

    def detail(self) -> dict[str, Any]:
        """Return the method and the model's detail."""
        return {"method": "cosine"} | self._detail

    def close(self) -> None:
        """End the threads."""
        self._close()

    def _item(self, prompt: Sequence[int], ids: Ids) -> Item:
        prefix = self._tokenizer.prefix
        whole = np.array([*prefix, *prompt, *ids, *self._tokenizer.suffix], dtype=np.int32)
        return Item(ids=whole, prompt=len(prefix) + len(prompt) if len(prompt) else 0)


def _with_chunk_index(error: NotFinite) -> NotFinite:
    """Return the error with the index of a chunk; the query is sequence 0."""
    at = error.extra.get("index")
    if at == 0:
        return NotFinite(f"query: {error.message}", param="query")
    return NotFinite(error.message, extra={} if at is None else {"index": at - 1})


def _prompt(prompts: Mapping[str, str], names: Sequence[str], default: str | None) -> str:
    name = next((name for name in names if name in prompts), default)
    return prompts.get(name, "") if name is not None else ""
