"""Times as people write them, `30s`, `5m`, `1h30m`, `never`, and as programs count them, in seconds."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

import msgspec

from host.manifest.expectation import shown

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
EXPECTED = "a time such as 500ms, 30s, 5m, 2h, 1d, a number of seconds, or never"

Duration = Annotated[
    float,
    msgspec.Meta(
        ge=0,
        extra_json_schema={"$comment": "duration", "pattern": r"^(never|(\d+(\.\d+)?\s*(ms|s|m|h|d)\s*)+)$"},
        extra={"duration": True, "expected": EXPECTED},
    ),
]
"""A field of a Struct that a manifest fills: text in the file, seconds in the Struct, `never` as infinity."""


def seconds(value: Any) -> float:
    """Return seconds for `5m`, `90`, `never` (infinity); raises `ValueError` that says what would be right."""
    found = -1.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    elif isinstance(value, str) and value.strip() == "never":
        return math.inf
    elif isinstance(value, str) and len(value) < 100 and _WHOLE.fullmatch(value.strip()):
        found = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
    if not 0 <= found < math.inf:
        raise ValueError(f"expected {EXPECTED}, got {shown(value)}")
    return found
