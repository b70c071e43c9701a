"""Entity offsets in UTF-16 code units and UTF-8 bytes."""

from __future__ import annotations

import pytest

from functions.ner.api import Entity
from functions.ner.offsets import convert_offsets


def entity(text: str, start: int, end: int, replacement: str | None = None) -> Entity:
    return Entity(text=text[start:end], label="A", start=start, end=end, score=1.0, replacement=replacement)


@pytest.mark.parametrize(("unit", "places"), [("codepoint", (3, 6)), ("utf16", (4, 8)), ("byte", (7, 15))])
def test_units(unit: str, places: tuple[int, int]) -> None:
    text = "😀é é😀x"
    (found,) = convert_offsets(text, [entity(text, 3, 6)], unit)
    assert (found.start, found.end) == (places[0], places[1] if unit != "byte" else 14)
    assert found.text == "é😀x"
