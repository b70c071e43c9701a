"""A request's messages and options as variables of chat templates."""

from __future__ import annotations

from typing import Any

import pytest

from functions.chat.api import Message, Part
from functions.chat.conversation import template_kwargs, to_template_messages


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message(role="user", content="x"), {"role": "user", "content": "x"}),
        (Message(role="assistant"), {"role": "assistant", "content": ""}),
        (Message(role="developer", content="x"), {"role": "system", "content": "x"}),
        (Message(role="user", content=[Part(text="a"), Part(text="b")]), {"role": "user", "content": "a\nb"}),
        (Message(role="user", content=[Part(type="refusal", refusal="no")]), {"role": "user", "content": "no"}),
        (
            Message(role="assistant", content="x", reasoning="r"),
            {"role": "assistant", "content": "x", "reasoning_content": "r"},
        ),
        (Message(role="tool", content="x", tool_call_id="c"), {"role": "tool", "content": "x", "tool_call_id": "c"}),
    ],
)
def test_messages_as_templates_take_them(message: Message, expected: dict[str, Any]) -> None:
    assert to_template_messages([message]) == [expected]


def test_a_template_that_knows_developers_gets_them() -> None:
    assert (
        to_template_messages([Message(role="developer", content="x")], knows_developer=True)[0]["role"] == "developer"
    )


def test_system_messages_move_into_the_users() -> None:
    chat = [Message(role="system", content="S"), Message(role="user", content="U"), Message(role="user", content="V")]
    assert to_template_messages(chat, knows_system=False) == [
        {"role": "user", "content": "S\n\nU"},
        {"role": "user", "content": "V"},
    ]
    assert to_template_messages(chat[:1], knows_system=False) == [{"role": "user", "content": "S"}]


@pytest.mark.parametrize(
    ("effort", "kwargs", "told"),
    [
        (None, None, {}),
        ("none", None, {"reasoning_effort": "none", "enable_thinking": False}),
        ("high", {"a": 1}, {"reasoning_effort": "high", "enable_thinking": True, "a": 1}),
        ("high", {"enable_thinking": False}, {"reasoning_effort": "high", "enable_thinking": False}),
    ],
)
def test_what_templates_are_told(effort: str | None, kwargs: Any, told: dict[str, Any]) -> None:
    assert template_kwargs(effort, kwargs) == told
