"""Converts contents, questions and their values to plain text: parts on separate lines, JSON in compact form."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from functions.decide.api import ChoiceSpec, LevelSpec, Part, Question, Value


def content_text(content: str | list[Part] | None) -> str:
    """Return the text of a content."""
    if isinstance(content, list):
        return "\n".join(_part_text(part) for part in content)
    return content or ""


def answer_values(question: Question) -> list[Value]:
    """Return the possible answers to a choice or a score, in the question's order."""
    if question.levels is not None:
        return [level.label for level in question.levels]
    return [choice.value for choice in question.choices or ()]


def value_texts(values: Sequence[Value]) -> list[str]:
    """Return each value as text, or as JSON where two values have the same text: `true` and `"true"`."""
    texts = [value_text(value).strip() for value in values]
    if len(set(texts)) == len(texts):
        return texts
    return [msgspec.json.encode(value).decode() for value in values]


def value_text(value: Value) -> str:
    """Return a value as text, booleans as in JSON."""
    return value if isinstance(value, str) else ("true" if value else "false")


def format_choices(question: Question) -> str:
    """Return the choices or levels in one line, or a line for each where any has a description."""
    specs: Sequence[ChoiceSpec | LevelSpec] = question.levels or question.choices or ()
    names = value_texts(answer_values(question))
    if not any(spec.description for spec in specs):
        return ", ".join(names)
    lines = [
        f"{name}: {spec.description}" if spec.description else name for name, spec in zip(names, specs, strict=True)
    ]
    return "\n" + "\n".join(lines) + "\n"


def question_text(question: Question) -> str:
    """Return all text of a question: its instructions, and its choices or levels."""
    return f"{content_text(question.instructions)}\n{format_choices(question)}"


def _part_text(part: Part) -> str:
    if part.type == "input_json":
        return msgspec.json.encode(part.data).decode()
    return part.text or part.refusal or ""
