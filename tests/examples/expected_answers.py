"""Compares an answer with the one a page shows.

Keys, JSON types and values have to be the same, with these exceptions. `…` in a text stands for any text; as the last
item of a list for any further items; as a key for any further keys. Numbers with a fraction may differ by a tolerance,
since models are computed in the precision that suits the processor; under some keys numbers may be any.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

MORE = "…"
TOLERANCE = 0.08
"""Of probabilities and scores: those of quantised models move by 0.05 with what is computed beside them."""
TOLERANCES = {
    "embedding": 0.005,
    **dict.fromkeys(
        ("created", "since", "pid", "uptime", "bytes", "memory", "device", "detail", "idle_left"), math.inf
    ),
    **dict.fromkeys(("loads", "evictions", "cached_tokens", "cache_write_tokens"), math.inf),
}
"""Under a key, at any depth; infinite ones hold for whole numbers too."""


def differences(expected: Any, got: Any, at: str = "$", tolerance: float = TOLERANCE) -> list[str]:
    """Return what is different, each with its place; nothing where the answer is as the page shows it."""
    if isinstance(expected, str) and isinstance(got, str):
        pattern = ".*".join(map(re.escape, expected.split(MORE)))
        return [] if re.fullmatch(pattern, got, re.DOTALL) else [f"{at}: {got!r} instead of {expected!r}"]
    if type(expected) is not type(got):
        return [f"{at}: {got!r} instead of {expected!r}"]
    if isinstance(expected, dict):
        return _of_keys(expected, got, at, tolerance)
    if isinstance(expected, list):
        return _of_items(expected, got, at, tolerance)
    near = isinstance(expected, float) and abs(expected - got) <= tolerance
    any_number = isinstance(expected, int) and not isinstance(expected, bool) and math.isinf(tolerance)
    return [] if near or any_number or expected == got else [f"{at}: {got!r} instead of {expected!r}"]


def _of_keys(expected: dict[str, Any], got: dict[str, Any], at: str, tolerance: float) -> list[str]:
    shown = [key for key in expected if key != MORE]
    found = [f"{at}: no key {key!r}" for key in shown if key not in got]
    if MORE not in expected:
        found += [f"{at}: the page has no key {key!r}" for key in got if key not in expected]
    for key in shown:
        if key in got:
            found += differences(expected[key], got[key], f"{at}.{key}", TOLERANCES.get(key, tolerance))
    return found


def _of_items(expected: list[Any], got: list[Any], at: str, tolerance: float) -> list[str]:
    shown = expected[:-1] if expected and expected[-1] == MORE else expected
    if len(got) < len(shown) or (shown is expected and len(got) != len(shown)):
        return [f"{at}: {len(got)} items instead of {len(expected)}"]
    pairs = enumerate(zip(shown, got, strict=False))
    return [line for index, (a, b) in pairs for line in differences(a, b, f"{at}[{index}]", tolerance)]


def lines_differ(expected: str, got: Iterable[str]) -> str | None:
    """Return what is different between the lines of a page and those of a stream; None where nothing is.

    A line `…` stands for any lines, and lines with JSON are compared as JSON. Empty lines do not count. Reads no
    further than the page does, since some streams have no end.
    """
    lines = (line for line in got if line)
    skips, last = False, "nothing"
    for line in filter(None, expected.splitlines()):
        if line == MORE:
            skips = True
            continue
        for last in lines:
            if _same_line(line, last):
                break
            if not skips:
                return f"{last!r} instead of {line!r}"
        else:
            return f"no line {line!r}; the last one is {last!r}"
        skips = False
    return None


def _same_line(expected: str, got: str) -> bool:
    head, brace, body = expected.partition("{")
    if brace and head == "data: " and got.startswith("data: {"):
        return not differences(json.loads(brace + body), json.loads(got.removeprefix("data: ")))
    return not differences(expected, got)
