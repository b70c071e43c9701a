"""The real OpenAI SDK against the real route and the real model; only processes and queues are missing."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

pytestmark = pytest.mark.anyio

NAME = "smollm2-135m"
ASKED: Any = [
    {"role": "system", "content": "Answer in English."},
    {"role": "user", "content": "What is the capital of France?"},
]
PARIS = "The capital of France is Paris."


async def test_a_completion(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=NAME, messages=ASKED, temperature=0)
    assert answer.choices[0].message.content == PARIS
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.total_tokens == answer.usage.prompt_tokens + 8
    again = await client.chat.completions.create(model=NAME, messages=ASKED, temperature=0)
    assert again.usage is not None and again.usage.prompt_tokens_details is not None
    assert again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens - 1


async def test_a_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=NAME, messages=ASKED, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == PARIS and len(chunks) > 6
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1] == "stop"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 8


async def test_the_sdks_stream_helper(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model=NAME, messages=ASKED, temperature=0) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == PARIS


async def test_several_answers(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=NAME, messages=ASKED, n=2, temperature=0)
    assert [choice.message.content for choice in answer.choices] == [PARIS, PARIS]


async def test_both_paths_and_the_content_types(http: httpx.AsyncClient) -> None:
    body = {"model": NAME, "messages": ASKED, "max_tokens": 1}
    for path in ("/v1/chat/completions", "/chat/completions"):
        answer = await http.post(path, json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    streamed = await http.post("/v1/chat/completions", json=body | {"stream": True})
    assert streamed.status_code == 200
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("change", "status", "param", "code"),
    [
        ({"temperature": 3}, 400, "temperature", "invalid_request"),
        ({"temperature": "hot"}, 400, "temperature", "invalid_request"),
        ({"messages": []}, 400, "messages", "invalid_request"),
        ({"tools": [{"type": "function"}]}, 400, "tools", "unsupported_parameter"),
        ({"logit_bias": {"99999": 1}}, 400, "logit_bias", "invalid_request"),
        ({"messages": [{"role": "user", "content": "word " * 700}]}, 400, "messages", "context_length_exceeded"),
        ({"model": "gpt-99"}, 404, None, "model_not_found"),
    ],
)
async def test_errors_have_their_own_status_also_in_streams(
    http: httpx.AsyncClient, change: dict[str, Any], status: int, param: str | None, code: str, stream: bool
) -> None:
    answer = await http.post("/v1/chat/completions", json={"model": NAME, "messages": ASKED, "stream": stream} | change)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")


async def test_the_overflows_numbers_reach_the_client(client: openai.AsyncOpenAI) -> None:
    long: Any = [{"role": "user", "content": "word " * 700}]
    with pytest.raises(openai.BadRequestError) as raised:
        await client.chat.completions.create(model=NAME, messages=long, stream=True)
    body: Any = raised.value.body
    assert body["n_ctx"] == 512 and body["n_prompt_tokens"] > 700


async def test_a_body_that_is_no_json(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/chat/completions", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 400 and answer.json()["error"]["type"] == "invalid_request_error"


async def test_messages_must_be_there(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/chat/completions", json={"model": NAME})
    assert answer.status_code == 400
    assert "messages" in json.dumps(answer.json()["error"])
