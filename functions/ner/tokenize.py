"""Tokenises a request's texts in groups that are computed together: many short texts, or a long one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from functions.engines.batching import length_guard
from functions.engines.batching.chunked_tokenizer import ChunkedTokenizer
from functions.engines.batching.classifier import TextTokenizer
from functions.engines.batching.item import Encoding
from host.errors import InputTooLong

TOKENS_MAX = 1 << 18
"""Tokens of one text, about a megabyte of English: the logits of all of them are in memory at once."""
_GROUP = 1 << 16
"""Tokens of a group, unless a single text has more."""

NamedText = tuple[str, str]
"""A text's path in the request, and the text."""


class GroupTokenizer:
    """Tokenises texts for one model."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._reader = ChunkedTokenizer(tokenizer, with_offsets=True)

    async def groups(self, texts: Sequence[NamedText]) -> AsyncGenerator[list[Encoding]]:
        """Yield the tokens of each text, in their order and several texts at once.

        Raises `InputTooLong` for a text of more than `TOKENS_MAX` tokens.
        """
        for name, text in texts:
            length_guard.check(text, TOKENS_MAX, name, "send it in parts")
        names = iter([name for name, _ in texts])
        group: list[Encoding] = []
        count = 0
        async for found in self._reader.each([text for _, text in texts], TOKENS_MAX):
            size = len(found.ids)
            _check(size, next(names))
            if group and count + size > _GROUP:
                yield group
                group, count = [], 0
            group.append(found)
            count += size
        yield group


def _check(size: int, name: str) -> None:
    if size > TOKENS_MAX:
        raise InputTooLong(f"{name} is too large: it has more than {TOKENS_MAX} tokens; send it in parts", param=name)
