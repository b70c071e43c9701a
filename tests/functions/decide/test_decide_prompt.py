"""Question prompts: templates of the manifest filled in."""

from __future__ import annotations

from typing import Any

from decisions import request_of

from functions.decide.options import DecideOptions
from functions.decide.prompt import QuestionPrompt, fill_prompt, question_prompt


def question(**fields: Any) -> Any:
    return request_of("x", [{"instructions": "Which?", **fields}]).questions[0]


def test_a_prompt_is_filled_in_once() -> None:
    assert fill_prompt("Look.{answer}Q: {instructions} ({choices})", "is {choices} {answer}?", "a") == QuestionPrompt(
        "Look.", "Q: is {choices} {answer}? (a)"
    )
    assert fill_prompt("{instructions} {braces}", "x", "") == QuestionPrompt("x {braces}", "")


def test_the_default_prompts() -> None:
    one = question_prompt(question(type="choice", choices=[{"value": "a"}, {"value": "b"}]), DecideOptions())
    assert one.user == "Answer questions about the text."
    assert one.model.endswith("\nWhich? (a, b)")
