"""The chat function: OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Sequence

from functions.chat.operations import CHAT
from host.function import Function
from host.hooks import hookimpl


@hookimpl
def coldframe_functions() -> Sequence[Function]:
    """Register the function. Workers import this page too, so what only HTTP needs is imported here."""
    from functions.chat.routes import chat_completions

    return (
        Function(
            name="chat",
            summary="Conversations: /v1/chat/completions",
            operations=(CHAT,),
            instances={"llama": "functions.chat.llama:LlamaChat"},
            tasks=("text-generation", "conversational"),
            routes=(chat_completions,),
            cli="functions.chat.cli:ChatCli",
        ),
    )
