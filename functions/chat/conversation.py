"""Converts a request's messages to the dictionaries that chat templates take, with roles that the template supports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functions.chat.api import Message

TemplateMessage = dict[str, Any]
"""A message as a template's variable."""


def to_template_messages(
    messages: Sequence[Message], *, knows_system: bool = True, knows_developer: bool = False
) -> list[TemplateMessage]:
    """Return the messages as dictionaries; content is always text.

    The role `developer` becomes `system` where the template does not support it, and a system message is put in front
    of the next user message where the template does not support that.
    """
    converted = [_convert(message, knows_developer) for message in messages]
    return converted if knows_system else _merge_system(converted)


def with_system(messages: Sequence[Message], default: str | None) -> Sequence[Message]:
    """Return the messages, with the default system message first where they have none."""
    if default is None or any(message.role in ("system", "developer") for message in messages):
        return messages
    return [Message(role="system", content=default), *messages]


def template_kwargs(effort: str | None, kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """Return the template's variables besides the messages; `kwargs` go before those of the reasoning effort."""
    variables: dict[str, Any] = {}
    if effort is not None:
        variables = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    return variables | (kwargs or {})


def content_text(message: Message) -> str:
    """Return the text of a message's content; parts are joined by line breaks."""
    if isinstance(message.content, list):
        return "\n".join(part.text or part.refusal or "" for part in message.content)
    return message.content or ""


def _convert(message: Message, knows_developer: bool) -> TemplateMessage:
    role = message.role
    if role == "developer" and not knows_developer:
        role = "system"
    converted: TemplateMessage = {"role": role, "content": content_text(message)}
    if message.tool_calls:
        converted["tool_calls"] = message.tool_calls
    reasoning = message.reasoning_content if message.reasoning_content is not None else message.reasoning
    for key, value in (
        ("name", message.name),
        ("tool_call_id", message.tool_call_id),
        ("reasoning_content", reasoning),
    ):
        if value is not None:
            converted[key] = value
    return converted


def _merge_system(messages: list[TemplateMessage]) -> list[TemplateMessage]:
    """Put system messages in front of the next user message."""
    kept: list[TemplateMessage] = []
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
