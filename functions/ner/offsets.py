"""Converts entity offsets from code points to UTF-16 code units or UTF-8 bytes, as clients in other languages count."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from functions.ner.api import Entity

_CODECS = {"utf16": ("utf-16-le", 2), "byte": ("utf-8", 1)}


def convert_offsets(text: str, entities: Sequence[Entity], offset_unit: str) -> list[Entity]:
    """Return the entities with `start` and `end` in `unit`: `codepoint`, `utf16` or `byte`."""
    if offset_unit == "codepoint" or text.isascii():
        return list(entities)
    codec, size = _CODECS[offset_unit]
    found: list[Entity] = []
    at = passed = 0
    for entity in entities:
        start = passed + len(text[at : entity.start].encode(codec)) // size
        end = start + len(text[entity.start : entity.end].encode(codec)) // size
        found.append(msgspec.structs.replace(entity, start=start, end=end))
        at, passed = entity.end, end
    return found
