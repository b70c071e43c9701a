"""Checks decision requests by OpenAI's rules, in the host; errors name the field."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from functions.decide.api import (
    CHOICES_MAX,
    QUESTIONS_MAX,
    ChoiceSpec,
    DecisionRequest,
    InputItem,
    LevelSpec,
    Part,
    Question,
)
from functions.decide.texts import content_text, value_text
from host.errors import InvalidRequest, UnsupportedParameter
from host.request_checks import check_choice, json_type, quoted

ROLES = ("user", "assistant", "system", "developer")
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Types of tool calls, and the field that holds the tool's input."""
OUTPUTS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}
"""Types of tool outputs, and the type of the call."""
QUESTION_TYPES = ("predicate", "choice", "score")

# JSON parts: OpenAI's limits.
_DEPTH_MAX, _VALUES_MAX, _BYTES_MAX = 32, 10_000, 256 << 10
_PARTS = {
    "user": ("input_text", "input_json"),
    "assistant": ("output_text", "refusal"),
    "system": ("input_text",),
    "developer": ("input_text",),
}


def check(request: DecisionRequest) -> None:
    """Raise `InvalidRequest` or `UnsupportedParameter` for the first field that is wrong."""
    if isinstance(request.input, str):
        if not request.input:
            raise InvalidRequest("`input` is empty: expected a text or a list of messages", param="input")
    else:
        _check_items(request.input)
    count = len(request.questions)
    if not 1 <= count <= QUESTIONS_MAX:
        message = f"`questions` has {count} questions: expected 1 to {QUESTIONS_MAX}"
        raise InvalidRequest(message, param="questions")
    for at, question in enumerate(request.questions):
        _check_question(question, f"questions[{at}]")


def _check_items(items: Sequence[InputItem]) -> None:
    if not items:
        raise InvalidRequest("`input` is empty: expected at least one message", param="input")
    calls: dict[str, str] = {}
    for at, item in enumerate(items):
        where = f"input[{at}]"
        kind = item.type or "message"
        if kind == "message":
            _check_message(item, where)
        elif kind in CALLS:
            _check_call(item, kind, calls, where)
        elif kind in OUTPUTS:
            _check_output(item, kind, calls, where)
        else:
            check_choice(kind, f"{where}.type", ("message", *CALLS, *OUTPUTS))


def _check_message(item: InputItem, where: str) -> None:
    if item.role is None:
        raise InvalidRequest(f"{where}.role is missing: expected {quoted(ROLES)}", param=f"{where}.role")
    check_choice(item.role, f"{where}.role", ROLES)
    _check_content(item.content, _PARTS[item.role], f"{where}.content")


def _check_call(item: InputItem, kind: str, calls: dict[str, str], where: str) -> None:
    call = _required(item.call_id, f"{where}.call_id")
    _required(item.name, f"{where}.name")
    field = CALLS[kind]
    if getattr(item, field) is None:
        raise InvalidRequest(f"`{where}.{field}` is missing: expected text", param=f"{where}.{field}")
    if call in calls:
        raise InvalidRequest(f"`{where}.call_id` is {call!r}, which an earlier call has", param=f"{where}.call_id")
    calls[call] = kind


def _check_output(item: InputItem, kind: str, calls: dict[str, str], where: str) -> None:
    call = _required(item.call_id, f"{where}.call_id")
    if calls.get(call) != OUTPUTS[kind]:
        message = f"`{where}.call_id` is {call!r}: no {OUTPUTS[kind]} before it has this id"
        raise InvalidRequest(message, param=f"{where}.call_id")
    _check_content(item.output, ("input_text",), f"{where}.output")


def _check_content(content: str | list[Part] | None, kinds: Sequence[str], where: str) -> None:
    if content is None:
        raise InvalidRequest(f"`{where}` is missing: expected text or a list of parts", param=where)
    if isinstance(content, list):
        for at, part in enumerate(content):
            _check_part(part, kinds, f"{where}[{at}]")


def _check_part(part: Part, kinds: Sequence[str], where: str) -> None:
    if part.type == "input_image":
        raise UnsupportedParameter(f"`{where}` is an image: this model reads text only", param=where)
    check_choice(part.type, f"{where}.type", kinds)
    if part.type == "input_json":
        _check_json(part.data, f"{where}.data")
        return
    field = "refusal" if part.type == "refusal" else "text"
    if getattr(part, field) is None:
        raise InvalidRequest(f"`{where}.{field}` is missing: expected text", param=f"{where}.{field}")


def _check_json(data: object, where: str) -> None:
    objects = data if isinstance(data, list) else [data]
    if not all(isinstance(one, dict) for one in objects):
        raise InvalidRequest(f"`{where}` must be an object or a list of objects", param=where)
    values, depth, layer = 0, 0, [data]
    while layer:
        depth += any(isinstance(one, dict | list) for one in layer)
        values += len(layer)
        if depth > _DEPTH_MAX or values > _VALUES_MAX:
            message = f"`{where}` is too large: expected at most {_DEPTH_MAX} levels and {_VALUES_MAX} values"
            raise InvalidRequest(message, param=where)
        if any(isinstance(one, int) and not -(1 << 63) <= one < 1 << 64 for one in layer):
            raise InvalidRequest(f"`{where}` has an integer of more than 64 bits: write it as text", param=where)
        inner = [one.values() if isinstance(one, dict) else one for one in layer if isinstance(one, dict | list)]
        layer = [value for part in inner for value in part]
    size = len(msgspec.json.encode(data))
    if size > _BYTES_MAX:
        raise InvalidRequest(f"`{where}` has {size} bytes as JSON: expected at most {_BYTES_MAX}", param=where)


def _check_question(question: Question, where: str) -> None:
    check_choice(question.type, f"{where}.type", QUESTION_TYPES)
    _check_content(question.instructions, ("input_text", "input_json"), f"{where}.instructions")
    if not content_text(question.instructions).strip():
        raise InvalidRequest(f"`{where}.instructions` is empty: expected text", param=f"{where}.instructions")
    for field, kind in (("choices", "choice"), ("levels", "score")):
        if question.type != kind and getattr(question, field) is not None:
            message = f"`{where}.{field}` is for questions of type {kind}, and this is a {question.type}"
            raise InvalidRequest(message, param=f"{where}.{field}")
    if question.type == "choice":
        _check_choices(question.choices, f"{where}.choices")
    elif question.type == "score":
        _check_levels(question.levels, f"{where}.levels")


def _check_choices(choices: list[ChoiceSpec] | None, where: str) -> None:
    if choices is None or not 2 <= len(choices) <= CHOICES_MAX:
        message = f"`{where}` {_count_text(choices)}: expected 2 to {CHOICES_MAX} choices"
        raise InvalidRequest(message, param=where)
    seen: set[tuple[type, object]] = set()
    for at, choice in enumerate(choices):
        value = choice.value
        if not isinstance(value, str | bool):
            message = f"`{where}[{at}].value` is {json_type(value)}: expected a text, true or false"
            raise InvalidRequest(message, param=f"{where}[{at}].value")
        if isinstance(value, str) and not value.strip():
            raise InvalidRequest(f"`{where}[{at}].value` is empty: expected a word", param=f"{where}[{at}].value")
        if (type(value), value) in seen:
            shown = repr(value) if isinstance(value, str) else value_text(value)
            message = f"`{where}[{at}].value` is {shown} again: expected each choice once"
            raise InvalidRequest(message, param=f"{where}[{at}].value")
        seen.add((type(value), value))


def _check_levels(levels: list[LevelSpec] | None, where: str) -> None:
    if levels is None or not 2 <= len(levels) <= CHOICES_MAX:
        message = f"`{where}` {_count_text(levels)}: expected 2 to {CHOICES_MAX} levels, from the lowest to the highest"
        raise InvalidRequest(message, param=where)
    seen: set[str] = set()
    for at, level in enumerate(levels):
        if not level.label.strip():
            raise InvalidRequest(f"`{where}[{at}].label` is empty: expected a word", param=f"{where}[{at}].label")
        if level.label in seen:
            message = f"`{where}[{at}].label` is {level.label!r} again: expected each label once"
            raise InvalidRequest(message, param=f"{where}[{at}].label")
        seen.add(level.label)


def _required(text: str | None, where: str) -> str:
    if not text:
        raise InvalidRequest(f"`{where}` is missing: expected text", param=where)
    return text


def _count_text(items: Sequence[object] | None) -> str:
    return "is missing" if items is None else f"has {len(items)}"
