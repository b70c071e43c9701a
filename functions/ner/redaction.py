"""Redacts texts: replaces entities by their type, their number or a repeated character, and keeps all else."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from functions.ner.api import Entity

_FIELD = re.compile(r"\{(label|n)\}")
_PLACE = re.compile(r"\{(\w*)\}")


def template_error(template: str) -> str | None:
    """Return the end of an error message about an unknown placeholder in the template; None if there is none."""
    unknown = next((name for name in _PLACE.findall(template) if name not in ("label", "n")), None)
    if unknown is None:
        return None
    return f"has {{{unknown}}}, which is not known: {{label}} is an entity's type, {{n}} its number"


class Redaction:
    """The replacements of one request: equal entities (by NFKC, case and white space) have one number in all texts."""

    def __init__(self, template: str) -> None:
        """`template` was checked by `fault`."""
        self._template = template
        self._numbers: dict[str, dict[str, int]] = {}

    def replacement(self, label: str, text: str) -> str:
        """Return the replacement of an entity."""
        if len(self._template) == 1:
            return self._template * len(text)
        fields = {"label": label, "n": ""}
        if "{n}" in self._template:
            fields["n"] = str(self._number(label, text))
        return _FIELD.sub(lambda found: fields[found[1]], self._template)

    def _number(self, label: str, text: str) -> int:
        """Return the entity's number among those of its type, from 1 in the order they come."""
        seen = self._numbers.setdefault(label, {})
        written = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        return seen.setdefault(written, len(seen) + 1)


def redacted(text: str, entities: Sequence[Entity]) -> str:
    """Return the text with each entity's replacement in its place; entities are in order, and count code points."""
    parts: list[str] = []
    at = 0
    for entity in entities:
        parts += (text[at : entity.start], entity.replacement or "")
        at = entity.end
    return "".join([*parts, text[at:]])
