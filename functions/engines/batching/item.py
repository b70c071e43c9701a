"""One tokenised input, and the special tokens that a model expects around texts and pairs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]


class Item(msgspec.Struct, frozen=True):
    """One input, ready to compute."""

    ids: Ids
    types: Ids | None = None
    """Token type id of each token, for pairs of texts."""
    prompt: int = 0
    """Tokens of the prompt at the start."""


def size(item: Item) -> int:
    """Return the number of tokens of an item."""
    return len(item.ids)


class Encoding(msgspec.Struct, frozen=True):
    """A text's tokens without special ones, and their offsets."""

    ids: Ids
    spans: Ids
    """(tokens, 2): start and end offset of each token in characters of the original text."""
    words: Ids
    """The word index of each token from 0, as the pre-tokenizer splits words; -1 for none."""


class Frame:
    """The special tokens before and after a text."""

    def __init__(self, prefix: Sequence[int], suffix: Sequence[int]) -> None:
        self.prefix, self.suffix = list(prefix), list(suffix)

    @classmethod
    def around(cls, bare: list[int], full: list[int]) -> Frame:
        """Return the frame that makes `full` of `bare`, the same short text with and without special tokens."""
        for at in range(len(full) - len(bare) + 1):
            if bare and full[at : at + len(bare)] == bare:
                return cls(full[:at], full[at + len(bare) :])
        return cls((), ())

    def frame(self, ids: Sequence[int], before: Sequence[int] = ()) -> Ids:
        """Return ids with the special tokens around them, and `before` in front; those already there are kept."""
        content = list(ids)
        head, tail = len(self.prefix), len(self.suffix)
        if head + tail and content[:head] == self.prefix and content[len(content) - tail :] == self.suffix:
            content = content[head : len(content) - tail]
        return np.array([*self.prefix, *before, *content, *self.suffix], dtype=np.int32)

    def cut(self, ids: Ids, limit: int) -> Ids:
        """Return ids cut at their end to `limit` tokens, the closing special tokens kept."""
        if len(ids) <= limit:
            return ids
        tail = len(self.suffix)
        return np.concatenate([ids[: limit - tail], ids[len(ids) - tail :]])


class PairFrame:
    """The special tokens before, between and after a pair of texts, and the token type ids of its parts."""

    def __init__(
        self, before: Sequence[int], between: Sequence[int], after: Sequence[int], types: Sequence[int] | None = None
    ) -> None:
        """`types` are the token type ids of: prefix, first text, separator, second text, suffix."""
        self.before, self.between, self.after = list(before), list(between), list(after)
        self._types = tuple(types) if types is not None and any(types) else None

    @classmethod
    def around(cls, first: list[int], second: list[int], full: list[int], types: list[int]) -> PairFrame | None:
        """Return the frame that makes `full` (with its `types`) of two short texts; None where they are not in it."""
        begin = _find(first, full, 0)
        then = _find(second, full, begin + len(first)) if begin is not None else None
        if begin is None or then is None:
            return None
        end, behind = begin + len(first), then + len(second)
        parts = (types[:begin], types[begin:end], types[end:then], types[then:behind], types[behind:])
        segments = [part[0] if part else 0 for part in parts]
        return cls(full[:begin], full[end:then], full[behind:], segments)

    @property
    def extra(self) -> int:
        """The number of special tokens of a pair."""
        return len(self.before) + len(self.between) + len(self.after)

    def item(self, first: Sequence[int] | Ids, second: Sequence[int] | Ids) -> Item:
        """Return a pair of texts as one input."""
        parts = (self.before, first, self.between, second, self.after)
        ids = np.concatenate([np.asarray(part, dtype=np.int32) for part in parts])
        if self._types is None:
            return Item(ids=ids)
        counts = [len(part) for part in parts]
        return Item(ids=ids, types=np.repeat(np.array(self._types, dtype=np.int32), counts))


def _find(part: list[int], whole: list[int], start: int) -> int | None:
    places = range(start, len(whole) - len(part) + 1)
    return next((at for at in places if part and whole[at : at + len(part)] == part), None)
