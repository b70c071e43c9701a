"""Events become OpenAI's frames and bodies: the right ones, in the right order, and no others."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from functions.chat.api import ChatEvent, ChatRequest, Done, Finish, Text
from functions.chat.response import ChunkRenderer, completion, completion_usage, fingerprint
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


def test_the_order_of_a_stream() -> None:
    found = frames(request(), EVENTS)
    assert [frame["choices"][0]["delta"] for frame in found] == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]
    assert [frame["choices"][0]["finish_reason"] for frame in found] == [None, None, None, "stop"]
    assert all("usage" not in frame for frame in found)


def test_every_frame_has_the_same_heading() -> None:
    found = frames(request(stream_options={"include_usage": True}), EVENTS)
    assert len({(f["id"], f["created"], f["model"], f["system_fingerprint"], f["object"]) for f in found}) == 1
    assert found[0]["id"].startswith("chatcmpl-") and found[0]["system_fingerprint"].startswith("b")
    assert found[0]["model"] == "an-alias" and found[0]["object"] == "chat.completion.chunk"
    assert isinstance(found[0]["created"], int)


def test_usage_comes_last_when_asked_for() -> None:
    found = frames(request(stream_options={"include_usage": True}), EVENTS)
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["total_tokens"] == 10
    assert found[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 5
    assert all(frame["usage"] is None for frame in found[:-1])


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None}])
def test_usage_does_not_come_unasked(options: Any) -> None:
    assert all(frame["choices"] for frame in frames(request(stream_options=options), EVENTS))


def test_an_answer_without_text_still_has_a_role() -> None:
    found = frames(request(), [Finish(0, "length"), Done(USAGE)])
    assert [frame["choices"][0]["delta"] for frame in found] == [{"role": "assistant", "content": ""}, {}]


def test_answers_interleave_by_index() -> None:
    events: list[ChatEvent] = [Text(1, "b"), Text(0, "a"), Finish(1, "stop"), Finish(0, "length"), Done(USAGE)]
    found = [frame["choices"][0] for frame in frames(request(n=2), events)]
    assert [choice["index"] for choice in found] == [1, 1, 0, 0, 1, 0]
    assert [choice["index"] for choice in found if choice["delta"].get("role")] == [1, 0]


def test_ids_differ() -> None:
    assert len({frames(request(), EVENTS)[0]["id"] for _ in range(3)}) == 3


def test_the_sdk_reads_every_frame() -> None:
    for frame in frames(request(stream_options={"include_usage": True}), EVENTS):
        ChatCompletionChunk.model_validate(frame, strict=True)


def test_the_whole_body() -> None:
    body = json.loads(msgspec.json.encode(completion(request(), EVENTS)))
    read = ChatCompletion.model_validate(body, strict=True)
    assert (read.object, read.model, read.system_fingerprint) == ("chat.completion", "an-alias", fingerprint())
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello", "refusal": None},
            "finish_reason": "stop",
            "logprobs": None,
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 5, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def test_several_answers_in_one_body() -> None:
    events: list[ChatEvent] = [Text(1, "b"), Text(0, "a"), Finish(1, "stop"), Finish(0, "length"), Done(None)]
    answer = completion(request(n=2), events)
    assert [(c.index, c.message.content, c.finish_reason) for c in answer.choices] == [
        (0, "a", "length"),
        (1, "b", "stop"),
    ]
    assert answer.usage is None


@pytest.mark.parametrize("event", EVENTS)
def test_events_survive_the_wire(event: ChatEvent) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=ChatEvent) == event


def test_usage_has_accepted_and_rejected_tokens() -> None:
    told = completion_usage(Usage(prompt_tokens=3, completion_tokens=9, accepted_tokens=5, rejected_tokens=2))
    details = told.completion_tokens_details
    assert (details.accepted_prediction_tokens, details.rejected_prediction_tokens) == (5, 2)
