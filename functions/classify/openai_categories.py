"""OpenAI's moderation categories, and a hint for unknown names of categories or labels."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CATEGORIES = (
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/instructions",
    "self-harm/intent",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
)
"""In the order of OpenAI's answers: https://platform.openai.com/docs/api-reference/moderations/object."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: the nearest known one, or the first 20."""
    names = list(known)
    by_lower = {name.lower(): name for name in reversed(names)}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{by_lower[near[0]]}`?"
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"known are: {shown or 'none'}"
