"""Text to token ids with the file's own vocabulary, in a thread of its own: neither the event loop's nor the model's.

Ids come uncut, with the special tokens that the vocabulary adds to a text, or puts between the two texts of a pair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from functions.engines.batching.item import Frame, Ids
from functions.engines.llama.library import lib
from functions.engines.llama.vocabulary import Vocabulary

A = TypeVar("A")

_SLICE = 64
"""Texts encoded in one go, so that a request of thousands lets others in between."""
_WORDPIECE, _UNIGRAM = lib.LLAMA_VOCAB_TYPE_WPM, lib.LLAMA_VOCAB_TYPE_UGM


class Words(Frame):
    """A vocabulary's way with whole texts."""

    def __init__(self, vocabulary: Vocabulary, template: str | None = None) -> None:
        """`template` is the file's own prompt for pairs, with `{query}` and `{document}` in it."""
        around = Frame.around(
            vocabulary.tokenize("a", special=False), vocabulary.tokenize("a", special=False, frame=True)
        )
        super().__init__(around.prefix, around.suffix)
        self.vocabulary = vocabulary.size
        """Number of token ids."""
        self._vocabulary = vocabulary
        self._pair = self._templated(template) if template else self._plain()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokenizer")

    async def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, special tokens included. Cancelling stops at the next slice."""
        return await self._sliced(texts, lambda text: self.frame(self.bare(text)))

    async def pairs(self, query: str, documents: Sequence[str], limit: int | None = None) -> list[Ids]:
        """Return the ids of the query with each document; what is longer than `limit` loses the document's end."""
        before, between, after = self._pair
        head = [*before, *self.bare(query), *between]

        def joined(document: str) -> Ids:
            ids = self.bare(document)
            if limit is not None:
                ids = ids[: max(0, limit - len(head) - len(after))]
            return np.array([*head, *ids, *after], dtype=np.int32)

        return await self._sliced(documents, joined)

    def bare(self, text: str) -> list[int]:
        """Return the ids of a text without special tokens, and none for what is spelled like them."""
        return self._vocabulary.tokenize(text, special=False)

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _sliced(self, texts: Sequence[str], encode: Callable[[str], A]) -> list[A]:
        def encoded(part: Sequence[str]) -> list[A]:
            return [encode(text) for text in part]

        found: list[A] = []
        loop = asyncio.get_running_loop()
        for start in range(0, len(texts), _SLICE):
            found += await loop.run_in_executor(self._thread, encoded, texts[start : start + _SLICE])
        return found

    def _plain(self) -> tuple[list[int], list[int], list[int]]:
        """Return what stands before, between and after the texts of a pair.

        BERT's kin put one separator between, RoBERTa's two: the end of the first text, and a separator.
        """
        words = self._vocabulary
        added = ((words.eos, words.adds_eos), (words.sep, words.adds_sep))
        between = [token for token, adds in added if adds and token is not None]
        if words.kind == _WORDPIECE or not between:
            between = self.suffix
        elif words.kind == _UNIGRAM and len(between) == 1:
            between = self.suffix * 2  # files older than the flag for separators
        return self.prefix, between, self.suffix

    def _templated(self, template: str) -> tuple[list[int], list[int], list[int]]:
        """Return the same from a template, in which special tokens are meant as such."""
        before, _, rest = template.partition("{query}")
        between, _, after = rest.partition("{document}")
        found = [self._vocabulary.tokenize(part, special=True) if part else [] for part in (before, between, after)]
        return found[0], found[1], found[2]
