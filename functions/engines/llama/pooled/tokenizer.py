"""Tokenizes texts with the vocabulary of a GGUF file, in a thread of its own.

Ids are not truncated. They include the special tokens that the vocabulary adds to a text or between two texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from functions.engines.batching.item import Frame, Ids, PairFrame
from functions.engines.batching.side_thread import SideThread
from functions.engines.llama.model.native_library import lib
from functions.engines.llama.model.vocabulary import Vocabulary

A = TypeVar("A")

_SLICE = 64
"""Texts encoded in one go, so that a request of thousands lets others in between."""
_SPELLED = re.compile(r"<[^<>\s]+>|\[[A-Z]+\]")
"""How vocabularies spell special tokens."""
_WORDPIECE, _UNIGRAM = lib.LLAMA_VOCAB_TYPE_WPM, lib.LLAMA_VOCAB_TYPE_UGM


class GgufTokenizer(Frame):
    """Tokenizer of whole texts and of pairs."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        around = Frame.around(
            vocabulary.tokenize("a", special=False), vocabulary.tokenize("a", special=False, frame=True)
        )
        super().__init__(around.prefix, around.suffix)
        self.vocabulary = vocabulary.size
        """Number of token ids."""
        self._vocabulary = vocabulary
        self.pair = PairFrame(*self._plain(), types=(0, 0, 0, 1, 1) if vocabulary.kind == _WORDPIECE else None)
        """Special tokens around the texts of a pair, for files without a prompt template; types for BERT."""
        self._thread = SideThread("tokenizer")

    async def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, special tokens included. Cancelling stops at the next slice."""
        return await self._sliced(texts, lambda text: self.frame(self.bare(text)))

    def bare(self, text: str) -> list[int]:
        """Return the ids of a text without special tokens, and none for what is spelled like them."""
        return self._vocabulary.tokenize(text, special=False)

    def special(self, template: str) -> dict[str, int]:
        """Return the special tokens that a template names, `<|im_end|>`, with their ids."""
        found = {word: self._vocabulary.tokenize(word, special=True) for word in set(_SPELLED.findall(template))}
        return {word: ids[0] for word, ids in found.items() if len(ids) == 1}

    def close(self) -> None:
        """Stop the thread."""
        self._thread.close()

    async def _sliced(self, texts: Sequence[str], encode: Callable[[str], A]) -> list[A]:
        def encoded(part: Sequence[str]) -> list[A]:
            return [encode(text) for text in part]

        found: list[A] = []
        for start in range(0, len(texts), _SLICE):
            found += await self._thread.run(encoded, texts[start : start + _SLICE])
        return found

    def _plain(self) -> tuple[list[int], list[int], list[int]]:
        """Return what stands before, between and after the texts of a pair.

        BERT's kin put one separator between, RoBERTa's two: the end of the first text, and a separator.
        """
        vocabulary = self._vocabulary
        added = ((vocabulary.eos, vocabulary.adds_eos), (vocabulary.sep, vocabulary.adds_sep))
        between = [token for token, adds in added if adds and token is not None]
        if vocabulary.kind == _WORDPIECE or not between:
            between = self.suffix
        elif vocabulary.kind == _UNIGRAM and len(between) == 1:
            between = self.suffix * 2  # files older than the flag for separators
        return self.prefix, between, self.suffix
