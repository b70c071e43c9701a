"""The conversation of a decision's input, as messages that chat templates accept."""

from __future__ import annotations

from decisions import request_of

from functions.decide.messages import ChatMessage, alternate_roles, to_messages

SYSTEM = ChatMessage("system", "S")


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
