"""Tokenises a request's inputs with their prompt, checks them against vocabulary and length, and cuts them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np

from functions.embeddings.api import EmbeddingsRequest
from functions.embeddings.content_parts import Image
from functions.embeddings.inputs import QUERY, Input
from functions.embeddings.openai_token_ids import OpenAITokenIds
from functions.engines.batching import length_guard
from functions.engines.batching.item import Ids, Item
from functions.engines.checkpoint.sentence.layout import Layout
from host.errors import InputTooLong, InvalidRequest

_COUNT_LIMIT = 16
"""Texts with more words than so many times the limit are not tokenised to be counted exactly."""
_QUERY_PROMPTS = ("query", "search_query")
_DOCUMENT_PROMPTS = ("document", "search_document", "passage", "corpus")


class EmbeddingTokenizer(Protocol):
    """The tokenizer of an embedding model, on any engine."""

    vocabulary: int
    prefix: list[int]

    async def encode(self, texts: Sequence[str]) -> list[Ids]: ...  # noqa: D102
    def bare(self, text: str) -> list[int]: ...  # noqa: D102
    def frame(self, ids: Sequence[int], before: Sequence[int] = ()) -> Ids: ...  # noqa: D102
    def cut(self, ids: Ids, limit: int) -> Ids: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


IndexedInput = tuple[str | list[int], int]
"""An input and its index in the request."""


class InputTokenizer:
    """Tokenises inputs for one model. `longest` is in tokens, special ones included; `size` is that of full vectors."""

    def __init__(
        self,
        tokenizer: EmbeddingTokenizer,
        layout: Layout,
        *,
        longest: int,
        truncate: bool,
        size: int,
        token_ids: OpenAITokenIds | None = None,
    ) -> None:
        """`truncate` is the manifest's; `token_ids` decodes token ids in requests, None for the model's own."""
        self.layout = layout
        self._tokenizer = tokenizer
        self._longest = longest
        self._truncate = truncate
        self._size = size
        self._token_ids = token_ids
        self._prompts = {name: tokenizer.bare(text) for name, text in layout.prompts.items()}

    async def tokenize(
        self,
        request: EmbeddingsRequest,
        inputs: Sequence[Input],
        *,
        indexes: Sequence[int] | None = None,
        marker: int | None = None,
        max_length: int | None = None,
    ) -> list[Item]:
        """Return a sequence for each text or list of ids; raises `InvalidRequest` and `InputTooLong` with its index.

        `indexes` are the inputs' indexes in the request, if there are others between them; `marker` is a token to put
        before each text; `max_length` is a limit below the model's own.
        """
        indexes = range(len(inputs)) if indexes is None else indexes
        name = self._prompt(request)
        before = [*([] if marker is None else [marker]), *(self._prompts[name] if name else [])]
        cut = self._truncate if request.truncate is None else request.truncate
        limit = self._longest if max_length is None else min(max_length, self._longest)
        text = self.layout.prompts[name] if name else ""
        indexed = self._with_indexes(inputs, indexes)
        if self._token_ids is not None:
            indexed = await asyncio.to_thread(_decode, indexed, self._token_ids)
        texts = [
            self._pre_truncate(f"{text}{item}", at, limit, cut=cut) for item, at in indexed if isinstance(item, str)
        ]
        sequences = [self._frame(item, before, at) for item, at in indexed if isinstance(item, list)]
        if texts:
            sequences = await self._encode(texts, [at for item, at in indexed if isinstance(item, str)])
            if marker is not None:
                sequences = [np.insert(ids, len(self._tokenizer.prefix), marker) for ids in sequences]
        prompt = len(self._tokenizer.prefix) + len(before) if before else 0
        truncate = partial(self._truncate_ids, count=len(inputs), longest=limit, cut=cut)
        return [Item(ids=truncate(ids, at), prompt=prompt) for ids, at in zip(sequences, indexes, strict=True)]

    def _with_indexes(self, inputs: Sequence[Input], indexes: Sequence[int]) -> list[IndexedInput]:
        """Return the inputs with their indexes; raises `InvalidRequest` for images."""
        indexed: list[IndexedInput] = []
        for item, at in zip(inputs, indexes, strict=True):
            if isinstance(item, Image):
                raise InvalidRequest(f"this model embeds texts only, and {item.param} is an image", param=item.param)
            indexed.append((item, at))
        return indexed

    def dimension(self, request: EmbeddingsRequest) -> int:
        """Return the size of dense vectors; raises `InvalidRequest` for a size that the model was not trained for."""
        dimensions, sizes = request.dimensions, self.layout.sizes
        if dimensions is None:
            return min(self.layout.size or self._size, self._size)
        if dimensions == self._size:
            return dimensions
        if dimensions > self._size:
            raise InvalidRequest(
                f"dimensions is {dimensions}, the model's vectors have {self._size}", param="dimensions"
            )
        if sizes is False:
            raise InvalidRequest(
                f"this model's vectors have {self._size} dimensions and were not trained to be cut to {dimensions}; "
                "leave dimensions out, or allow it with options.matryoshka in the manifest",
                param="dimensions",
            )
        if sizes is not True and dimensions not in sizes:
            listed = ", ".join(map(str, sorted({*sizes, self._size})))
            raise InvalidRequest(
                f"dimensions must be one of {listed} for this model, got {dimensions}", param="dimensions"
            )
        return dimensions

    def close(self) -> None:
        """End the tokenizer's thread."""
        self._tokenizer.close()

    def _prompt(self, request: EmbeddingsRequest) -> str | None:
        """Return the name of the prompt for a request; None for none."""
        if request.prompt_name is not None:
            if request.prompt_name in self.layout.blank:
                return None
            if request.prompt_name not in self._prompts:
                known = ", ".join(sorted({*self._prompts, *self.layout.blank})) or "none"
                raise InvalidRequest(
                    f"prompt_name {request.prompt_name!r} is not known; this model's prompts: {known}",
                    param="prompt_name",
                )
            return request.prompt_name
        if request.input_type is None:
            return self.layout.default_prompt
        names = _QUERY_PROMPTS if request.input_type in QUERY else _DOCUMENT_PROMPTS
        return next((name for name in names if name in self._prompts), None)

    async def _encode(self, texts: Sequence[str], indexes: Sequence[int]) -> list[Ids]:
        """Return the texts' token ids; errors name the input."""
        try:
            return await self._tokenizer.encode(texts)
        except InvalidRequest:
            for text, at in zip(texts, indexes, strict=True):
                try:
                    await self._tokenizer.encode([text])
                except InvalidRequest as error:
                    raise InvalidRequest(f"input[{at}]: {error.message}", param=f"input[{at}]") from None
            raise

    def _frame(self, ids: list[int], before: Sequence[int], at: int) -> Ids:
        if max(ids) >= self._tokenizer.vocabulary:
            last = self._tokenizer.vocabulary - 1
            raise InvalidRequest(
                f"input[{at}] has the token id {max(ids)}, but the model's vocabulary ends at {last}: ids of another "
                "tokenizer cannot be embedded; send texts (LangChain: check_embedding_ctx_length=False), or name "
                "the ids' vocabulary with options.token_ids in the manifest",
                param=f"input[{at}]",
            )
        return self._tokenizer.frame(ids, before)

    def _pre_truncate(self, text: str, at: int, longest: int, *, cut: bool) -> str:
        """Cut a text that is far too long before it is tokenised: a word is at least one token.

        Tokenising megabytes of text takes seconds, for which other requests would wait. Raises `InputTooLong`.
        """
        most = _COUNT_LIMIT * longest
        words = text.split(maxsplit=most) if len(text) >= 2 * most else []
        if len(words) > most:
            if cut:
                return text[: -len(words[-1])]
            raise _far_too_long(at, f"more than {most} tokens", longest, {"n_prompt_tokens": most, "n_ctx": longest})
        if not length_guard.too_long(text, longest):
            return text
        if cut:
            return length_guard.head(text, longest)
        raise _far_too_long(at, f"more than {length_guard.PER_TOKEN * longest} characters", longest, {"n_ctx": longest})

    def _truncate_ids(self, ids: Ids, at: int, *, count: int, longest: int, cut: bool) -> Ids:
        if not len(ids):
            raise InvalidRequest(
                f"input[{at}] has no tokens for this model: it is white space only", param=f"input[{at}]"
            )
        if len(ids) <= longest:
            return ids
        if cut:
            return self._tokenizer.cut(ids, longest)
        param = f"input[{at}]" if count > 1 or at else "input"
        raise InputTooLong(
            f"{param} is too large: it has {len(ids)} tokens, the model takes {longest}; "
            "shorten it, or send truncate: true to have it cut",
            param=f"input[{at}]",
            extra={"n_prompt_tokens": len(ids), "n_ctx": longest},
        )


def _decode(indexed: Sequence[IndexedInput], token_ids: OpenAITokenIds) -> list[IndexedInput]:
    """Return the inputs with token ids decoded to text."""
    return [(item if isinstance(item, str) else token_ids.decode(item, f"input[{at}]"), at) for item, at in indexed]


def _far_too_long(at: int, has: str, longest: int, extra: dict[str, int]) -> InputTooLong:
    return InputTooLong(
        f"input[{at}] is too large: it has {has}, the model takes {longest} tokens; "
        "shorten it, or send truncate: true to have it cut",
        param=f"input[{at}]",
        extra=extra,
    )
