"""The longest common prefix of two token lists, or of two paths in a token tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_BLOCK = 256
"""Items compared at once, by one comparison of slices."""


def common_prefix(a: Sequence[Any], b: Sequence[Any], limit: int | None = None) -> int:
    """Return how many leading items `a` and `b` have in common, at most `limit`."""
    count = min(len(a), len(b)) if limit is None else min(len(a), len(b), limit)
    if type(a) is not type(b):
        a, b = list(a[:count]), list(b[:count])  # slices of different types are never equal
    at = 0
    while at < count and a[at : min(at + _BLOCK, count)] == b[at : min(at + _BLOCK, count)]:
        at += _BLOCK
    while at < count and a[at] == b[at]:
        at += 1
    return min(at, count)
