"""A request's messages as the plain data that chat templates take, bent to what the template at hand knows.

It knows messages and roles, and nothing of templates' text, engines or HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functions.chat.api import Message

Plain = dict[str, Any]


def plain(messages: Sequence[Message], *, knows_system: bool = True, knows_developer: bool = False) -> list[Plain]:
    """Return the messages as templates take them: content is text, never null.

    `developer` becomes `system`, and a leading system message goes into the user's first one, where the template at
    hand knows no better.
    """
    found = [_message(message, knows_developer) for message in messages]
    return found if knows_system else _without_system(found)


def with_system(messages: Sequence[Message], default: str | None) -> Sequence[Message]:
    """Return the messages, with the default system message before them when they bring none."""
    if default is None or any(message.role in ("system", "developer") for message in messages):
        return messages
    return [Message(role="system", content=default), *messages]


def extras(effort: str | None, kwargs: dict[str, Any] | None) -> Plain:
    """Return what a template may be told besides the messages."""
    told: Plain = {}
    if effort is not None:
        told = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    return told | (kwargs or {})


def text(message: Message) -> str:
    """Return the text of a message's content; parts stand on lines of their own."""
    if isinstance(message.content, list):
        return "\n".join(part.text or part.refusal or "" for part in message.content)
    return message.content or ""


def _message(message: Message, knows_developer: bool) -> Plain:
    role = message.role
    if role == "developer" and not knows_developer:
        role = "system"
    found: Plain = {"role": role, "content": text(message)}
    if message.tool_calls:
        found["tool_calls"] = message.tool_calls
    reasoning = message.reasoning_content if message.reasoning_content is not None else message.reasoning
    for key, value in (
        ("name", message.name),
        ("tool_call_id", message.tool_call_id),
        ("reasoning_content", reasoning),
    ):
        if value is not None:
            found[key] = value
    return found


def _without_system(messages: list[Plain]) -> list[Plain]:
    """Put system messages in front of the user message that follows them."""
    kept: list[Plain] = []
    pending: list[str] = []
    for message in messages:
        if message["role"] in ("system", "developer"):
            pending.append(message["content"])
        elif message["role"] == "user" and pending:
            kept.append({**message, "content": "\n\n".join([*pending, message["content"]])})
            pending = []
        else:
            kept.append(message)
    if pending:
        kept.append({"role": "user", "content": "\n\n".join(pending)})
    return kept
