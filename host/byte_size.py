"""Sizes as people write them, `8GiB`, `500MB`, and as programs count them, in bytes."""

from __future__ import annotations

import re
from typing import Any

from host.manifest.expectation import shown

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)")
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
EXPECTED = "a size such as 8GiB, 500MB, or a number of bytes"


def size(value: Any) -> int:
    """Return bytes for `8GiB`, `500MB` or a number above 0; raises `ValueError` that says what would be right."""
    found = 0
    if isinstance(value, int) and not isinstance(value, bool):
        found = value
    elif isinstance(value, str) and len(value) < 40 and (match := _SIZE.fullmatch(value.strip())):
        found = int(float(match[1]) * _UNITS[match[2]])
    if not 0 < found < 1 << 63:
        raise ValueError(f"expected {EXPECTED}, got {shown(value)}")
    return found


def spoken(count: int) -> str:
    """Return bytes in three digits and a unit: `512 B`, `1.2 GB`."""
    amount, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 999.5 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.1f} {units[0]}" if amount < 9.95 and units[0] != "B" else f"{amount:.0f} {units[0]}"
