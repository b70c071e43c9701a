"""Everything that can be wrong with a request, and the field that the answer names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from decisions import request_of

from functions.decide.api import DecisionRequest
from functions.decide.request_checks import check
from host.errors import InvalidRequest, UnsupportedParameter

CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def deep(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels - 1):
        found = {"a": found}
    return found


def json_part(data: Any) -> list[Any]:
    return [user([{"type": "input_json", "data": data}])]


@pytest.mark.parametrize(
    ("input_", "param"),
    [
        ("", "input"),
        ([], "input"),
        ([{"type": "reasoning"}], "input[0].type"),
        ([{"role": "tool", "content": "x"}], "input[0].role"),
        ([user(None)], "input[0].content"),
        ([user("a"), user([{"type": "output_text", "text": "x"}])], "input[1].content[0].type"),
        ([{"role": "system", "content": [{"type": "input_json", "data": {}}]}], "input[0].content[0].type"),
        ([user([{"type": "input_text"}])], "input[0].content[0].text"),
        ([{"role": "assistant", "content": [{"type": "refusal"}]}], "input[0].content[0].refusal"),
        (json_part("text"), "input[0].content[0].data"),
        (json_part([{}, 1]), "input[0].content[0].data"),
        (json_part(deep(33)), "input[0].content[0].data"),
        (json_part({"a": list(range(10_000))}), "input[0].content[0].data"),
        (json_part({"a": "x" * (256 << 10)}), "input[0].content[0].data"),
        (json_part({"a": [1 << 64]}), "input[0].content[0].data"),
        (json_part([{"a": -(1 << 63) - 1}]), "input[0].content[0].data"),
        ([OUTPUT], "input[0].call_id"),
        ([OUTPUT, CALL], "input[0].call_id"),
        ([CALL, {**OUTPUT, "call_id": "c2"}], "input[1].call_id"),
        ([CALL, {**OUTPUT, "type": "custom_tool_call_output"}], "input[1].call_id"),
        ([CALL, {**OUTPUT, "output": None}], "input[1].output"),
        ([CALL, CALL], "input[1].call_id"),
        ([{**CALL, "name": None}], "input[0].name"),
        ([{**CALL, "arguments": None}], "input[0].arguments"),
        ([{"type": "custom_tool_call", "call_id": "c", "name": "n"}], "input[0].input"),
    ],
)
def test_wrong_inputs(input_: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as told:
        check(request_of(input_, ["Is it?"]))
    assert told.value.param == param
    assert param.split("[", maxsplit=1)[0] in told.value.message


CHOICE = {"type": "choice", "instructions": "Which?"}
SCORE = {"type": "score", "instructions": "How?"}


def choices(*values: Any) -> dict[str, Any]:
    return {**CHOICE, "choices": [{"value": value} for value in values]}


def levels(*labels: str) -> dict[str, Any]:
    return {**SCORE, "levels": [{"label": label} for label in labels]}


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ({"type": "rank", "instructions": "x"}, ".type"),
        ({"type": "predicate", "instructions": ""}, ".instructions"),
        ({"type": "predicate", "instructions": "  "}, ".instructions"),
        ({"type": "predicate", "instructions": []}, ".instructions"),
        ({"type": "predicate", "instructions": [{"type": "output_text", "text": "x"}]}, ".instructions[0].type"),
        ({"type": "predicate", "instructions": "x", "choices": []}, ".choices"),
        ({**choices("a", "b"), "levels": []}, ".levels"),
        (CHOICE, ".choices"),
        (choices("a"), ".choices"),
        (choices(*map(str, range(256))), ".choices"),
        (choices("a", "b", "a"), ".choices[2].value"),
        (choices(True, True), ".choices[1].value"),
        (choices("a", " "), ".choices[1].value"),
        (SCORE, ".levels"),
        (levels("a"), ".levels"),
        (levels("a", "a"), ".levels[1].label"),
        (levels("a", ""), ".levels[1].label"),
    ],
)
def test_wrong_questions(question: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as told:
        check(request_of("x", ["Fine?", question]))
    assert told.value.param == f"questions[1]{field}"
    assert f"questions[1]{field}" in told.value.message


@pytest.mark.parametrize("count", [0, 401])
def test_how_many_questions(count: int) -> None:
    with pytest.raises(InvalidRequest, match=f"has {count} questions: expected 1 to 400"):
        check(request_of("x", ["Is it?"] * count))


@pytest.mark.parametrize(
    ("input_", "question", "param"),
    [
        ([user([IMAGE])], "Is it?", "input[0].content[0]"),
        ([CALL, {**OUTPUT, "output": [IMAGE]}], "Is it?", "input[1].output[0]"),
        ("x", {"type": "predicate", "instructions": [IMAGE]}, "questions[0].instructions[0]"),
    ],
)
def test_images_are_not_read(input_: Any, question: Any, param: str) -> None:
    with pytest.raises(UnsupportedParameter, match="reads text only") as told:
        check(request_of(input_, [question]))
    assert told.value.param == param


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(0, "a number"), (1, "a number"), (2, "a number"), (1.5, "a number with a fraction"), (None, "null"),
     ([], "a list"), ({}, "an object")],
)  # fmt: skip
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "lax"])
def test_a_choice_is_text_or_true_or_false(wrong: Any, kind: str, strict: bool) -> None:
    """Also where types are read as HTTP hosts read those of parameters: 0 and 1 as booleans."""
    body = {"model": "m", "input": "x", "questions": [choices("b", wrong)]}
    with pytest.raises(InvalidRequest) as told:
        check(msgspec.convert(body, DecisionRequest, strict=strict))
    assert told.value.param == "questions[0].choices[1].value"
    assert told.value.message == f"`questions[0].choices[1].value` is {kind}: expected a text, true or false"


@pytest.mark.parametrize(("value", "told"), [(True, "true"), (False, "false"), ("a", "'a'")])
def test_what_is_there_twice_is_reported_as_json(value: Any, told: str) -> None:
    with pytest.raises(InvalidRequest, match=f"value` is {told} again"):
        check(request_of("x", [choices(value, value)]))


def test_what_is_right_passes() -> None:
    conversation = [
        {"role": "system", "content": "Be brief."},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "x"}]},
        user([{"type": "input_text", "text": "x"}, {"type": "input_json", "data": [deep(30)]}]),
        *json_part({"a": [(1 << 64) - 1, -(1 << 63), True]}),
        CALL,
        {"type": "custom_tool_call", "call_id": "c2", "name": "n", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "x"}]},
        OUTPUT,
        {"role": "assistant", "content": [{"type": "output_text", "text": "x"}, {"type": "refusal", "refusal": "no"}]},
        {"role": "assistant", "content": "x", "phase": "final_answer"},
    ]
    asked = [
        {"type": "predicate", "instructions": [{"type": "input_json", "data": {"a": 1}}], "name": "p"},
        choices("true", True, "false", False),
        choices(*map(str, range(255))),
        levels("1", "2"),
    ]
    check(request_of(conversation, asked, prompt_cache_key="k", prompt_cache_options={"mode": "implicit"}))
    check(request_of("x", ["Is it?"] * 400))
