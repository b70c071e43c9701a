"""Converts a decision's input to chat messages in plain text: one role after the other.

Tool calls and their outputs become messages as well, since few chat templates support tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from functions.decide.api import DecisionRequest, InputItem
from functions.decide.request_checks import CALLS, OUTPUTS
from functions.decide.texts import content_text


class ChatMessage(NamedTuple):
    """One message of a conversation."""

    role: str
    """`system`, `user` or `assistant`."""
    text: str


def to_messages(request: DecisionRequest, system: str) -> list[ChatMessage]:
    """Return the input's messages, preceded by the message `system` where the input has no system message.

    Neighbouring messages of one role are merged: many templates require roles to alternate.
    """
    if isinstance(request.input, str):
        return [ChatMessage("system", system), ChatMessage("user", request.input)]
    messages = list(_convert(request.input))
    if not any(message.role == "system" for message in messages):
        messages.insert(0, ChatMessage("system", system))
    return merge_roles(messages)


def merge_roles(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages with neighbours of one role merged."""
    merged: list[ChatMessage] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = ChatMessage(message.role, f"{merged[-1].text}\n\n{message.text}")
        else:
            merged.append(message)
    return merged


def alternate_roles(messages: Sequence[ChatMessage], *, knows_system: bool) -> list[ChatMessage]:
    """Return messages that any template accepts: at most one system message, first; then user and assistant in turn."""
    converted = [
        ChatMessage("user", message.text) if message.role == "system" and (at or not knows_system) else message
        for at, message in enumerate(messages)
    ]
    start = 1 if converted and converted[0].role == "system" else 0
    if converted[start:] and converted[start].role == "assistant":
        converted.insert(start, ChatMessage("user", "…"))
    return merge_roles(converted)


def _convert(items: Sequence[InputItem]) -> Iterator[ChatMessage]:
    names: dict[str, str] = {}
    for item in items:
        item_type = item.type or "message"
        if item_type in CALLS:
            names[item.call_id or ""] = item.name or ""
            yield ChatMessage("assistant", f"Call of {item.name}: {getattr(item, CALLS[item_type])}")
        elif item_type in OUTPUTS:
            yield ChatMessage("user", f"Result of {names.get(item.call_id or '', '')}: {content_text(item.output)}")
        else:
            role = "system" if item.role == "developer" else item.role or "user"
            yield ChatMessage(role, content_text(item.content))
