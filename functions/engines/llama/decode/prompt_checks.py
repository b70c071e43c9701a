"""Which prompts can be computed at all. It knows counts and ids, and nothing of text or of who asks."""

from __future__ import annotations

from collections.abc import Sequence

from host.errors import ContextLengthExceeded, InvalidRequest


def check(prompt: Sequence[int], *, vocabulary_size: int, length: int) -> None:
    """Raise `InvalidRequest` for an empty prompt, one with tokens outside a vocabulary of `vocabulary_size`, or a longer one than
    a slot of `length` tokens holds together with one token of an answer."""
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
