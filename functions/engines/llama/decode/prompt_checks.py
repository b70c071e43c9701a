"""Checks of a prompt's token ids: not empty, within the vocabulary, shorter than the context."""

from __future__ import annotations

from collections.abc import Sequence

from host.errors import ContextLengthExceeded, InvalidRequest


def check(prompt: Sequence[int], *, vocabulary_size: int, length: int) -> None:
    """Raise `InvalidRequest` for a prompt that is empty or has token ids outside the vocabulary.

    Raises `ContextLengthExceeded` if a slot of `length` tokens has no room for one token of the answer after it.
    """
    if not prompt:
        raise InvalidRequest("the prompt is empty: expected at least one token")
    low, high = min(prompt), max(prompt)
    if low < 0 or high >= vocabulary_size:
        wrong = low if low < 0 else high
        raise InvalidRequest(f"the prompt has the token {wrong}: this model's tokens are 0 to {vocabulary_size - 1}")
    if len(prompt) >= length:
        raise ContextLengthExceeded(
            f"the prompt has {len(prompt)} tokens, and this model's context holds {length}, "
            "of which at least one is for the answer",
            extra={"n_prompt_tokens": len(prompt), "n_ctx": length},
        )
