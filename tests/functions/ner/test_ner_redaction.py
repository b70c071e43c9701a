"""Replacements of entities, and texts redacted with them."""

from __future__ import annotations

import pytest

from functions.ner.api import Entity
from functions.ner.redaction import Redaction, redacted


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("[{label}]", ["[PER]", "[PER]", "[LOC]", "[PER]"]),
        ("<{label}>", ["<PER>", "<PER>", "<LOC>", "<PER>"]),
        ("[{label}_{n}]", ["[PER_1]", "[PER_2]", "[LOC_1]", "[PER_1]"]),
        ("*", ["***", "****", "***", "***"]),
        ("█", ["███", "████", "███", "███"]),
        ("removed", ["removed"] * 4),
        ("{{label}", ["{PER", "{PER", "{LOC", "{PER"]),
        (r"\1{n}", [r"\11", r"\12", r"\11", r"\11"]),
    ],
)
def test_replacements(template: str, found: list[str]) -> None:
    redaction = Redaction(template)
    entities = [("PER", "Ann"), ("PER", "Bert"), ("LOC", "Ann"), ("PER", "ANN")]
    assert [redaction.replacement(*entity) for entity in entities] == found


def test_what_is_written_otherwise_has_the_same_number() -> None:
    redaction = Redaction("{n}")
    texts = ["José Smith", "Jose\u0301  SMITH", "José\nSmith", "Jose Smith"]
    assert [redaction.replacement("PER", text) for text in texts] == ["1", "1", "1", "2"]


def entity(text: str, start: int, end: int, replacement: str | None = None) -> Entity:
    return Entity(text=text[start:end], label="A", start=start, end=end, score=1.0, replacement=replacement)


def test_all_else_is_left_as_it_is() -> None:
    text = "\ufeffa\r\n\tAnn😀 \u200bBert\u0000 "
    found = [entity(text, 5, 8, "[A]"), entity(text, 11, 15, "")]
    assert redacted(text, found) == "\ufeffa\r\n\t[A]😀 \u200b\u0000 "
    assert redacted(text, []) == text
    assert redacted("Ann", [entity("Ann", 0, 3, "[A]")]) == "[A]"
