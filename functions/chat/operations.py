"""The operation of the chat function."""

from __future__ import annotations

from functions.chat.api import ChatEvent, ChatRequest
from functions.chat.request_checks import check
from host.function import Operation

CHAT: Operation[ChatRequest, ChatEvent] = Operation(
    name="chat", request=ChatRequest, answer=ChatEvent, streams=True, check=check, path="/v1/chat/completions"
)
