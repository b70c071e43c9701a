"""HTTP routes of the chat function: OpenAI's `/v1/chat/completions`."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Response, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from functions.chat.api import ChatRequest
from functions.chat.operations import CHAT
from functions.chat.response import ChunkRenderer, Completion, completion
from host.http import HostDependency
from host.http.response import JsonResponse
from host.http.sse import EventStream


@post(
    ["/v1/chat/completions", "/chat/completions"],
    status_code=200,
    summary="Answer a conversation",
    tags=["chat"],
    responses={200: ResponseSpec(Completion, generate_examples=False, description="Whole; streams send its chunks")},
)
async def chat_completions(data: JSONBody[ChatRequest], host: HostDependency) -> Response[Any]:
    """Answer a conversation, whole or as a stream of server-sent events."""
    model = host.served_name(data.model, CHAT)
    if model != data.model:
        data = msgspec.structs.replace(data, model=model)
    if data.stream:
        return EventStream(host.stream(model, CHAT, data), ChunkRenderer(data))
    return JsonResponse(completion(data, await host.collect(model, CHAT, data)))
