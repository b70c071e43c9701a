"""Contents, values and choices as plain text."""

from __future__ import annotations

from typing import Any

import pytest
from decisions import request_of

from functions.decide.texts import content_text, format_choices, value_texts


def question(**fields: Any) -> Any:
    return request_of("x", [{"instructions": "Which?", **fields}]).questions[0]


def test_parts_are_lines_and_json_is_compact() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_json", "data": {"k": [1, None, "é"]}}]
    assert (
        content_text(request_of([{"role": "user", "content": parts}], ["x"]).input[0].content)
        == 'a\n{"k":[1,null,"é"]}'
    )


@pytest.mark.parametrize(
    ("values", "spellings"),
    [
        (["a", True, False], ["a", "true", "false"]),
        (["true", True], ['"true"', "true"]),
        (["a", " a"], ['"a"', '" a"']),
        (["Yes", "yes"], ["Yes", "yes"]),
    ],
)
def test_values_that_would_be_written_alike_are_written_as_json(values: list[Any], spellings: list[str]) -> None:
    assert value_texts(values) == spellings


def test_choices_in_a_line_or_with_their_descriptions() -> None:
    plain = question(type="choice", choices=[{"value": "a"}, {"value": True}])
    assert format_choices(plain) == "a, true"
    told = question(type="score", levels=[{"label": "low", "description": "hardly any"}, {"label": "high"}])
    assert format_choices(told) == "\nlow: hardly any\nhigh\n"
