"""A request's inputs as items to compute: prompt chosen, tokenised, checked against vocabulary and length, or cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from functions.embeddings.api import EmbeddingsRequest
from functions.embeddings.inputs import QUERY
from functions.engines.batching.item import Ids, Item
from functions.engines.transformers.sentence.layout import Layout
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


class Items:
    """Makes items for one model. `longest` is in tokens, special ones included; `size` is a whole vector's."""

    def __init__(self, tokenizer: Tokenizer, layout: Layout, *, longest: int, truncate: bool, size: int) -> None:
        self._tokenizer = tokenizer
        self._layout = layout
        self._longest = longest
        self._truncate = truncate
        self._size = size
        self._prompts = {name: tokenizer.bare(text) for name, text in layout.prompts.items()}

    async def make(self, request: EmbeddingsRequest, inputs: list[str] | list[list[int]]) -> list[Item]:
        """Return one item for each input; raises `InvalidRequest` and `InputTooLong` that name its index."""
        name = self._prompt(request)
        before = self._prompts[name] if name else []
        text = self._layout.prompts[name] if name else ""
        texts = [f"{text}{item}" for item in inputs if isinstance(item, str)]
        ids = [self._framed(item, before, at) for at, item in enumerate(inputs) if isinstance(item, list)]
        cut = self._truncate if request.truncate is None else request.truncate
        found = ids or await self._tokenizer.encode([self._short(t, at, cut=cut) for at, t in enumerate(texts)])
        prompt = len(self._tokenizer.prefix) + len(before) if name else 0
        return [Item(ids=self._fit(ids, at, len(found), cut=cut), prompt=prompt) for at, ids in enumerate(found)]

    def dimension(self, request: EmbeddingsRequest) -> int:
        """Return how many numbers each vector shall have; raises `InvalidRequest` where the model cannot be cut so."""
        wanted, sizes = request.dimensions, self._layout.sizes
        if wanted is None:
            return min(self._layout.size or self._size, self._size)
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
            if request.prompt_name not in self._prompts:
                known = ", ".join(sorted(self._prompts)) or "none"
                raise InvalidRequest(
                    f"prompt_name {request.prompt_name!r} is not known; this model's prompts: {known}",
                    param="prompt_name",
                )
            return request.prompt_name
        if request.input_type is None:
            return self._layout.default_prompt
        names = _PROMPTS_FOR_QUERIES if request.input_type in QUERY else _PROMPTS_FOR_DOCUMENTS
        return next((name for name in names if name in self._prompts), None)

    def _framed(self, ids: list[int], before: list[int], at: int) -> Ids:
        if max(ids) >= self._tokenizer.vocabulary:
            last = self._tokenizer.vocabulary - 1
            raise InvalidRequest(
                f"input[{at}] has the token id {max(ids)}, but the model's vocabulary ends at {last}: "
                "ids of another tokenizer cannot be embedded, send texts (LangChain: check_embedding_ctx_length=False)",
                param=f"input[{at}]",
            )
        return self._tokenizer.frame(ids, before)

    def _short(self, text: str, at: int, *, cut: bool) -> str:
        """Return the text without what is over-long by far: a word is a token at least.

        Megabytes of text would else keep the tokenizer, and whoever waits for it, busy for seconds only to be refused.
        """
        most = _FAR * self._longest
        if len(text) < 2 * most:
            return text
        words = text.split(maxsplit=most)
        if len(words) <= most:
            return text
        if cut:
            return text[: -len(words[-1])]
        raise InputTooLong(
            f"input[{at}] is too large: it has more than {most} tokens, the model takes {self._longest}; "
            "shorten it, or send truncate: true to have it cut",
            param=f"input[{at}]",
            extra={"n_prompt_tokens": most, "n_ctx": self._longest},
        )

    def _fit(self, ids: Ids, at: int, count: int, *, cut: bool) -> Ids:
        if not len(ids):
            raise InvalidRequest(
                f"input[{at}] has no tokens for this model: it is white space only", param=f"input[{at}]"
            )
        if len(ids) <= self._longest:
            return ids
        if cut:
            return self._tokenizer.cut(ids, self._longest)
        place = f"input[{at}]" if count > 1 else "input"
        raise InputTooLong(
            f"{place} is too large: it has {len(ids)} tokens, the model takes {self._longest}; "
            "shorten it, or send truncate: true to have it cut",
            param=f"input[{at}]",
            extra={"n_prompt_tokens": len(ids), "n_ctx": self._longest},
        )
