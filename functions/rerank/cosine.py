"""Scores by an embedding model: the cosine of query and document, each behind the prompt that the model has for it.

Quick and coarse: nothing reads query and document together. A manifest has to name it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from functions.engines.batching.item import Ids, Item
from functions.rerank.scorer import Mark, Reading, after
from host.errors import InputTooLong, NotFinite, UnsupportedParameter

Vector = npt.NDArray[np.float32]

_FOR_QUERIES = ("query", "search_query")
_FOR_DOCUMENTS = ("document", "search_document", "passage", "corpus")
_TINY = 1e-12


class TextTokenizer(Protocol):
    """What is asked of a tokenizer here."""

    prefix: list[int]
    suffix: list[int]

    async def encode(self, texts: Sequence[str]) -> list[Ids]: ...  # noqa: D102


class CosineScorer:
    """See `functions.rerank.scorer.Scorer`. `vectors` embeds items; `prompts` are texts by name."""

    def __init__(
        self,
        vectors: Callable[[Sequence[Item]], Awaitable[list[Vector]]],
        tokens: TextTokenizer,
        *,
        longest: int,
        prompts: Mapping[str, str],
        default: str | None,
        detail: dict[str, Any],
        close: Callable[[], None],
    ) -> None:
        self.longest = longest
        self._vectors = vectors
        self._tokens = tokens
        self._query = _prompt(prompts, _FOR_QUERIES, default)
        self._document = _prompt(prompts, _FOR_DOCUMENTS, default)
        self._detail = detail
        self._close = close

    async def read(self, query: str, documents: Sequence[str], instruction: str | None) -> Reading:
        """Tokenise query and documents behind their prompts."""
        if instruction is not None:
            raise UnsupportedParameter(
                "instruction: embedding models take none; options.prompts has what stands before a query",
                param="instruction",
            )
        texts = [self._query, self._query + query, self._document, *(self._document + text for text in documents)]
        begin, end = len(self._tokens.prefix), len(self._tokens.suffix)
        bare = [ids[begin : len(ids) - end] for ids in await self._tokens.encode(texts)]
        frame = begin + end
        if frame + len(bare[1]) > self.longest:
            count = frame + len(bare[1])
            raise InputTooLong(
                f"query is too large: it has {count} tokens, the model takes {self.longest}; shorten it",
                param="query",
                extra={"n_prompt_tokens": count, "n_ctx": self.longest},
            )
        asked, (own,) = after(bare[0].tolist(), [bare[1]])
        shown, parts = after(bare[2].tolist(), bare[3:])
        size = frame + len(shown)
        return Reading(parts=parts, frame=size, room=self.longest - size, state=(self._item(asked, own), shown))

    async def marks(self, reading: Reading, parts: Sequence[Ids]) -> list[Mark]:
        """Return a mark for each part: the cosine is logit and score in one."""
        query, shown = reading.state
        try:
            first, *others = await self._vectors([query, *(self._item(shown, part) for part in parts)])
        except NotFinite as error:
            raise _placed(error) from error
        rows = np.stack(others).astype(np.float64)
        lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(first.astype(np.float64))
        cosines = rows @ first.astype(np.float64) / np.maximum(lengths, _TINY)
        return [Mark(float(cosine), float(cosine)) for cosine in cosines]

    def detail(self) -> dict[str, Any]:
        """Return what was chosen."""
        return {"method": "cosine"} | self._detail

    def close(self) -> None:
        """End the threads."""
        self._close()

    def _item(self, prompt: Sequence[int], part: Ids) -> Item:
        ids = np.array([*self._tokens.prefix, *prompt, *part, *self._tokens.suffix], dtype=np.int32)
        return Item(ids=ids, prompt=len(self._tokens.prefix) + len(prompt) if len(prompt) else 0)


def _placed(error: NotFinite) -> NotFinite:
    """Return the error with the index of a part; the query is computed before all of them."""
    at = error.extra.get("index")
    if at == 0:
        return NotFinite(f"query: {error.message}", param="query")
    return NotFinite(error.message, extra={} if at is None else {"index": at - 1})


def _prompt(prompts: Mapping[str, str], names: Sequence[str], default: str | None) -> str:
    name = next((name for name in names if name in prompts), default)
    return prompts.get(name, "") if name is not None else ""
