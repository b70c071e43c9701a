"""The command line of chat."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from functions.chat.api import ChatEvent, ChatRequest, Done, Finish, Text
from functions.chat.cli import ChatCli
from functions.chat.request_checks import check
from functions.chat.response import ChunkRenderer
from host.function import Usage

USAGE = Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=5)


def request(**fields: Any) -> ChatRequest:
    return msgspec.convert({"model": "an-alias", "messages": [], "stream": True} | fields, ChatRequest)


def frames(asked: ChatRequest, events: list[ChatEvent]) -> list[Any]:
    renderer = ChunkRenderer(asked)
    raw = [part for event in events for part in renderer(event)] + list(renderer.end())
    assert all(part.startswith(b"data: ") and part.endswith(b"\n\n") for part in raw)
    assert raw[-1] == b"data: [DONE]\n\n"
    return [json.loads(part[6:]) for part in raw[:-1]]


EVENTS: list[ChatEvent] = [Text(0, "Hel"), Text(0, "lo"), Finish(0, "stop"), Done(USAGE)]


def test_what_a_person_reads_at_a_command_line() -> None:
    shell = ChatCli()
    assert "".join(shell.show(frame) for frame in frames(request(), EVENTS)) == "Hello"
    assert shell.show({"choices": [{"message": {"role": "assistant", "content": "Hello"}}]}) == "Hello"
    assert shell.show({"choices": [], "usage": {}}) == ""
    check(msgspec.convert(shell.body("hi") | {"model": "m"}, ChatRequest))
