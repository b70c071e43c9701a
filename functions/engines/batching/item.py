"""One input as token ids, and the special tokens that a model wants around them."""

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
    """Segment of each token, for inputs of two texts."""
    prompt: int = 0
    """Tokens at the start that are a prompt and not the text."""


def size(item: Item) -> int:
    """Return an item's tokens."""
    return len(item.ids)


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
