"""Suggests the nearest known name for an unknown key or field."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], what: str) -> str:
    """Return `did you mean …?`, or all that is known, as `known keys: …` where `what` is `keys`."""
    names = list(known)
    near = difflib.get_close_matches(word.lower().replace("-", "_"), names, n=1, cutoff=0.5)
    return f"did you mean `{near[0]}`?" if near else f"known {what}: {', '.join(sorted(names)) or 'none'}"
