"""Contents as plain text: parts on lines of their own, JSON compactly. It knows the request's types and no model."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from functions.decide.api import ChoiceSpec, LevelSpec, Part, Question, Value


def text(content: str | list[Part] | None) -> str:
    """Return the text of a content."""
    if isinstance(content, list):
        return "\n".join(_part(part) for part in content)
    return content or ""


def values(question: Question) -> list[Value]:
    """Return what may be answered to a choice or a score, in the question's order."""
    if question.levels is not None:
        return [level.label for level in question.levels]
    return [choice.value for choice in question.choices or ()]


def spelled(among: Sequence[Value]) -> list[str]:
    """Return how each value is written; as JSON where two would be written alike: `true` and `"true"`."""
    plain = [plainly(value) for value in among]
    if len({one.strip() for one in plain}) == len(plain):
        return [one.strip() for one in plain]
    return [msgspec.json.encode(value).decode() for value in among]


def plainly(value: Value) -> str:
    """Return a value as a word: booleans as JSON has them."""
    return value if isinstance(value, str) else ("true" if value else "false")


def listed(question: Question) -> str:
    """Return the choices or levels in one line; on a line each where any of them is described."""
    given: Sequence[ChoiceSpec | LevelSpec] = question.levels or question.choices or ()
    names = spelled(values(question))
    if not any(one.description for one in given):
        return ", ".join(names)
    lines = [f"{name}: {one.description}" if one.description else name for name, one in zip(names, given, strict=True)]
    return "\n" + "\n".join(lines) + "\n"


def written(question: Question) -> str:
    """Return all that a question says: its instructions, and its choices or levels."""
    return f"{text(question.instructions)}\n{listed(question)}"


def _part(part: Part) -> str:
    if part.type == "input_json":
        return msgspec.json.encode(part.data).decode()
    return part.text or part.refusal or ""
