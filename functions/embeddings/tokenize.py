"""A request's inputs as items to compute: prompt chosen, tokenised, checked against vocabulary and length, or cut."""

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

_FAR = 16
"""How many times too long a text is that is not tokenised to be counted exactly."""
_PROMPTS_FOR_QUERIES = ("query", "search_query")
_PROMPTS_FOR_DOCUMENTS = ("document", "search_document", "passage", "corpus")


class Tokenizer(Protocol):
    """What items ask of a model's tokenizer, whatever engine it is of."""

    vocabulary: int
    prefix: list[int]

    async def encode(self, texts: Sequence[str]) -> list[Ids]: ...  # noqa: D102
    def bare(self, text: str) -> list[int]: ...  # noqa: D102
    def frame(self, ids: Sequence[int], before: Sequence[int] = ()) -> Ids: ...  # noqa: D102
    def cut(self, ids: Ids, limit: int) -> Ids: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


Placed = tuple[str | list[int], int]
"""An input and its index in the request."""


class InputTokenizer:
    """Makes items for one model. `longest` is in tokens, special ones included; `size` is a whole vector's."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        layout: Layout,
        *,
        longest: int,
        truncate: bool,
        size: int,
        foreign: OpenAITokenIds | None = None,
    ) -> None:
        """`foreign` is the vocabulary of token ids in requests, None for the model's own."""
        self.layout = layout
        self._tokenizer = tokenizer
        self._longest = longest
        self._truncate = truncate
        self._size = size
        self._foreign = foreign
        self._prompts = {name: tokenizer.bare(text) for name, text in layout.prompts.items()}

    async def make(
        self,
        request: EmbeddingsRequest,
        inputs: Sequence[Input],
        *,
        places: Sequence[int] | None = None,
        marker: int | None = None,
        most: int | None = None,
    ) -> list[Item]:
        """Return one item for each text or list of ids; raises `InvalidRequest` and `InputTooLong` with its index.

        `places` are the inputs' indexes in the request where others stand between them, `marker` is a token to put
        before each text, and `most` goes before the model's own longest input.
        """
        places = range(len(inputs)) if places is None else places
        name = self._prompt(request)
        before = [*([] if marker is None else [marker]), *(self._prompts[name] if name else [])]
        cut = self._truncate if request.truncate is None else request.truncate
        limit = self._longest if most is None else min(most, self._longest)
        text = self.layout.prompts[name] if name else ""
        placed = self._placed(inputs, places)
        if self._foreign is not None:
            placed = await asyncio.to_thread(_read, placed, self._foreign)
        texts = [self._short(f"{text}{item}", at, limit, cut=cut) for item, at in placed if isinstance(item, str)]
        found = [self._framed(item, before, at) for item, at in placed if isinstance(item, list)]
        if texts:
            found = await self._encoded(texts, [at for item, at in placed if isinstance(item, str)])
            if marker is not None:
                found = [np.insert(ids, len(self._tokenizer.prefix), marker) for ids in found]
        prompt = len(self._tokenizer.prefix) + len(before) if before else 0
        fitting = partial(self._fit, count=len(inputs), longest=limit, cut=cut)
        return [Item(ids=fitting(ids, at), prompt=prompt) for ids, at in zip(found, places, strict=True)]

    def _placed(self, inputs: Sequence[Input], places: Sequence[int]) -> list[Placed]:
        """Return the inputs with their indexes; raises `InvalidRequest` for images."""
        placed: list[Placed] = []
        for item, at in zip(inputs, places, strict=True):
            if isinstance(item, Image):
                raise InvalidRequest(f"this model embeds texts only, and {item.place} is an image", param=item.place)
            placed.append((item, at))
        return placed

    def dimension(self, request: EmbeddingsRequest) -> int:
        """Return how many numbers each vector shall have; raises `InvalidRequest` where the model cannot be cut so."""
        wanted, sizes = request.dimensions, self.layout.sizes
        if wanted is None:
            return min(self.layout.size or self._size, self._size)
        if wanted == self._size:
            return wanted
        if wanted > self._size:
            raise InvalidRequest(f"dimensions is {wanted}, the model's vectors have {self._size}", param="dimensions")
        if sizes is False:
            raise InvalidRequest(
                f"this model's vectors have {self._size} dimensions and were not trained to be cut to {wanted}; "
                "leave dimensions out, or allow it with options.matryoshka in the manifest",
                param="dimensions",
            )
        if sizes is not True and wanted not in sizes:
            listed = ", ".join(map(str, sorted({*sizes, self._size})))
            raise InvalidRequest(f"dimensions must be one of {listed} for this model, got {wanted}", param="dimensions")
        return wanted

    def close(self) -> None:
        """End the tokenizer's thread."""
        self._tokenizer.close()

    def _prompt(self, request: EmbeddingsRequest) -> str | None:
        """Return the name of the prompt to use; None for none."""
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
        names = _PROMPTS_FOR_QUERIES if request.input_type in QUERY else _PROMPTS_FOR_DOCUMENTS
        return next((name for name in names if name in self._prompts), None)

    async def _encoded(self, texts: Sequence[str], places: Sequence[int]) -> list[Ids]:
        """Return the texts' ids; an error names the input that it is about."""
        try:
            return await self._tokenizer.encode(texts)
        except InvalidRequest:
            for text, at in zip(texts, places, strict=True):
                try:
                    await self._tokenizer.encode([text])
                except InvalidRequest as error:
                    raise InvalidRequest(f"input[{at}]: {error.message}", param=f"input[{at}]") from None
            raise

    def _framed(self, ids: list[int], before: Sequence[int], at: int) -> Ids:
        if max(ids) >= self._tokenizer.vocabulary:
            last = self._tokenizer.vocabulary - 1
            raise InvalidRequest(
                f"input[{at}] has the token id {max(ids)}, but the model's vocabulary ends at {last}: ids of another "
                "tokenizer cannot be embedded; send texts (LangChain: check_embedding_ctx_length=False), or name "
                "the ids' vocabulary with options.token_ids in the manifest",
                param=f"input[{at}]",
            )
        return self._tokenizer.frame(ids, before)

    def _short(self, text: str, at: int, longest: int, *, cut: bool) -> str:
        """Return the text without what is over-long by far: a word is a token at least.

        Megabytes of text would else keep the tokenizer, and whoever waits for it, busy for seconds only to be refused.
        """
        most = _FAR * longest
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

    def _fit(self, ids: Ids, at: int, *, count: int, longest: int, cut: bool) -> Ids:
        if not len(ids):
            raise InvalidRequest(
                f"input[{at}] has no tokens for this model: it is white space only", param=f"input[{at}]"
            )
        if len(ids) <= longest:
            return ids
        if cut:
            return self._tokenizer.cut(ids, longest)
        place = f"input[{at}]" if count > 1 or at else "input"
        raise InputTooLong(
            f"{place} is too large: it has {len(ids)} tokens, the model takes {longest}; "
            "shorten it, or send truncate: true to have it cut",
            param=f"input[{at}]",
            extra={"n_prompt_tokens": len(ids), "n_ctx": longest},
        )


def _read(placed: Sequence[Placed], foreign: OpenAITokenIds) -> list[Placed]:
    """Return the inputs with token ids of another vocabulary as text again."""
    return [(item if isinstance(item, str) else foreign.text(item, f"input[{at}]"), at) for item, at in placed]


def _far_too_long(at: int, has: str, longest: int, extra: dict[str, int]) -> InputTooLong:
    return InputTooLong(
        f"input[{at}] is too large: it has {has}, the model takes {longest} tokens; "
        "shorten it, or send truncate: true to have it cut",
        param=f"input[{at}]",
        extra=extra,
    )
