"""The tokenizer of a GGUF model: text to token ids, ids to bytes, special tokens, and end-of-generation tokens.

All methods are thread-safe.
"""

from __future__ import annotations

import ctypes
from functools import cached_property

from functions.engines.llama.model.native_library import lib

_NULL = -1


class Vocabulary:
    """The tokenizer of one loaded model."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.size: int = lib.llama_vocab_n_tokens(handle)
        self.bos: int | None = _id(lib.llama_vocab_bos(handle))
        self.eos: int | None = _id(lib.llama_vocab_eos(handle))
        self.sep: int | None = _id(lib.llama_vocab_sep(handle))
        self.adds_bos: bool = lib.llama_vocab_get_add_bos(handle)
        self.adds_eos: bool = lib.llama_vocab_get_add_eos(handle)
        self.adds_sep: bool = lib.llama_vocab_get_add_sep(handle)
        self.kind: int = lib.llama_vocab_type(handle)
        """llama.cpp's number of the kind of tokenizer."""
        self._pieces: dict[int, bytes] = {}
        self._ends: dict[int, bool] = {}

    def tokenize(self, text: str, *, special: bool, frame: bool = False) -> list[int]:
        """Return the ids of the text; `special` reads `<|im_end|>` and its like as one id.

        `frame` adds what the vocabulary puts around a whole text: BOS, EOS, separators.
        """
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        ids = (lib.llama_token * room)()
        count = lib.llama_tokenize(self._handle, data, len(data), ids, room, frame, special)
        if count < 0:
            ids = (lib.llama_token * -count)()
            count = lib.llama_tokenize(self._handle, data, len(data), ids, -count, frame, special)
        return list(ids[:count])

    def prompt(self, text: str) -> list[int]:
        """Return the ids of a rendered prompt, with BOS exactly once where the model wants one.

        Templates write BOS, or leave it to the tokenizer, or both: whatever they do, it stands once.
        """
        ids = self.tokenize(text, special=True)
        if self.bos is None:
            return ids
        start = 0
        while ids[start : start + 2] == [self.bos, self.bos]:
            start += 1
        if start:
            return ids[start:]
        return [self.bos, *ids] if self.adds_bos and ids[:1] != [self.bos] else ids

    def piece(self, token: int) -> bytes:
        """Return the bytes a token stands for; control tokens stand for none."""
        found = self._pieces.get(token)
        if found is None:
            found = self._pieces[token] = self._bytes(token, special=False)
        return found

    def spelled(self, token: int | None) -> str:
        """Return a special token as templates write it, `<s>`; empty for None."""
        return "" if token is None else self._bytes(token, special=True).decode("utf-8", "replace")

    def ends(self, token: int) -> bool:
        """Return whether the token ends a generation."""
        found = self._ends.get(token)
        if found is None:
            found = self._ends[token] = bool(lib.llama_vocab_is_eog(self._handle, token))
        return found

    @cached_property
    def enders(self) -> tuple[int, ...]:
        """Every id that ends a generation. The first look takes tens of milliseconds: it asks for each id."""
        return tuple(token for token in range(self.size) if lib.llama_vocab_is_eog(self._handle, token))

    def _bytes(self, token: int, *, special: bool) -> bytes:
        room = 64
        buffer = ctypes.create_string_buffer(room)
        count = lib.llama_token_to_piece(self._handle, token, buffer, room, 0, special)
        if count < 0:
            buffer = ctypes.create_string_buffer(-count)
            count = lib.llama_token_to_piece(self._handle, token, buffer, -count, 0, special)
        return buffer.raw[:count]


def _id(token: int) -> int | None:
    return None if token == _NULL else token
