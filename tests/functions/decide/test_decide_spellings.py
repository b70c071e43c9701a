"""Requests in words: contents, turns of a conversation, prompts filled in, and what the command line asks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from decisions import request_of

from functions.decide.api import DecisionRequest
from functions.decide.checks import check
from functions.decide.cli import DecideCli
from functions.decide.messages import ChatMessage, alternate_roles, to_messages
from functions.decide.options import DecideOptions
from functions.decide.prompt import QuestionPrompt, fill_prompt, question_prompt
from functions.decide.texts import content_text, format_choices, value_texts
from host.errors import InvalidRequest

SYSTEM = ChatMessage("system", "S")


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


def test_a_conversation_with_tools_in_order() -> None:
    items = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "1", "name": "weather", "arguments": '{"city":"Rome"}'},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "rain"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "It rains."}]},
    ]
    assert to_messages(request_of(items, ["x"]), "S") == [
        ChatMessage("system", "Be kind."),
        ChatMessage("user", "Weather?"),
        ChatMessage("assistant", 'I look.\n\nCall of weather: {"city":"Rome"}'),
        ChatMessage("user", "Result of weather: rain"),
        ChatMessage("assistant", "It rains."),
    ]
    assert to_messages(request_of("t", ["x"]), "S") == [SYSTEM, ChatMessage("user", "t")]
    assert to_messages(request_of(items[1:2], ["x"]), "S") == [SYSTEM, ChatMessage("user", "Weather?")]


def test_turns_that_any_template_takes() -> None:
    said = [SYSTEM, ChatMessage("assistant", "a"), ChatMessage("system", "late"), ChatMessage("user", "u")]
    assert alternate_roles(said, knows_system=True) == [
        SYSTEM,
        ChatMessage("user", "…"),
        ChatMessage("assistant", "a"),
        ChatMessage("user", "late\n\nu"),
    ]
    assert alternate_roles(said, knows_system=False) == [
        ChatMessage("user", "S"),
        ChatMessage("assistant", "a"),
        ChatMessage("user", "late\n\nu"),
    ]


def test_a_prompt_is_filled_in_once() -> None:
    assert fill_prompt("Look.{answer}Q: {instructions} ({choices})", "is {choices} {answer}?", "a") == QuestionPrompt(
        "Look.", "Q: is {choices} {answer}? (a)"
    )
    assert fill_prompt("{instructions} {braces}", "x", "") == QuestionPrompt("x {braces}", "")


def test_the_default_prompts() -> None:
    one = question_prompt(question(type="choice", choices=[{"value": "a"}, {"value": "b"}]), DecideOptions())
    assert one.user == "Answer questions about the text."
    assert one.model.endswith("\nWhich? (a, b)")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"predicate_prompt": "Yes or no?"}, "must have {instructions}"),
        ({"choice_prompt": "{answer}{instructions}{answer}"}, "more than once"),
        ({"yes_words": ["ok "], "no_words": ["ok"]}, "both have 'ok'"),
        ({"yes_words": []}, "length >= 1"),
        ({"yes": ["Ja"]}, "unknown field `yes`"),
        ({"choice_prompt": "{instructions} {choises}"}, "`choice_prompt` has {choises}, which is not known"),
        ({"temperature": 0}, "temperature"),
        ({"min_mass": 1.5}, "min_mass"),
    ],
)
def test_options_that_cannot_work(options: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(options, DecideOptions)


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("Is it nice?\nA lovely day.", {"type": "predicate", "instructions": "Is it nice?"}),
        (
            "Topic? sports | my travel\nA trip.",
            {"type": "choice", "instructions": "Topic?", "choices": [{"value": "sports"}, {"value": "my travel"}]},
        ),
        (
            "good|bad\nA trip.",
            {
                "type": "choice",
                "instructions": "Which of these is it?",
                "choices": [{"value": "good"}, {"value": "bad"}],
            },
        ),
    ],
)
def test_a_command_line_asks(line: str, body: dict[str, Any]) -> None:
    found = DecideCli().body(line)
    assert found["questions"] == [body]
    assert found["input"] == line.partition("\n")[2]


@pytest.mark.parametrize("line", ["Is it nice?", "Is it nice?\n \n", "good | bad"])
def test_a_command_line_without_a_text_is_refused_as_over_http(line: str) -> None:
    body = DecideCli().body(line)
    with pytest.raises(InvalidRequest, match="`input` is empty") as caught:
        check(msgspec.convert({"model": "m", **body}, DecisionRequest))
    assert caught.value.param == "input"


def test_a_command_line_shows_the_most_probable_first() -> None:
    probabilities = [{"value": "a", "probability": 0.25}, {"value": True, "probability": 0.75}]
    answers = [
        {"type": "predicate", "probability": 0.75},
        {"type": "choice", "probabilities": probabilities},
        {"type": "score", "probabilities": [{"label": "low", "value": 0, "probability": 1.0}]},
        {"type": "refusal"},
    ]
    shown = DecideCli().show({"answers": answers})
    assert shown.splitlines() == ["yes (0.750 yes)", "0.750 true", "0.250 a", "1.000 low", "no answer"]
