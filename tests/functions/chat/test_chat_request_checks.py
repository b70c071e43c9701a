"""Bad requests are refused with the name of the field; null and empty never are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from functions.chat.api import ChatRequest
from functions.chat.request_checks import _UNSERVED, check
from host.errors import InvalidRequest, UnsupportedParameter

USER = {"role": "user", "content": "hi"}


def request(**fields: Any) -> ChatRequest:
    return msgspec.json.decode(msgspec.json.encode({"model": "m", "messages": [USER]} | fields), type=ChatRequest)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"min_p": -1}, "min_p"),
        ({"top_k": -2}, "top_k"),
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"max_tokens": 1 << 40}, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 0}, "max_completion_tokens"),
        ({"frequency_penalty": 2.5}, "frequency_penalty"),
        ({"presence_penalty": -2.5}, "presence_penalty"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"repeat_penalty": 1e-38}, "repeat_penalty"),
        ({"repetition_penalty": -1}, "repetition_penalty"),
        ({"stop": [f"{n}" for n in range(33)]}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"logit_bias": {"word": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"²": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"1" * 4301: 1}}, "logit_bias"),
        ({"store": True}, "store"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"verbosity": "extreme"}, "verbosity"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": False, "stream_options": {}}, "stream_options"),
        ({"reasoning_effort": "much"}, "reasoning_effort"),
        ({"messages": []}, "messages"),
        ({"messages": [USER, {"role": "robot", "content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]},
            "messages[0].content[1]",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [USER, *[{"role": "assistant", "content": "a"}] * 2]}, "messages"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"x": 1, "bos_token": "a"}}, "chat_template_kwargs"),
        (
            {
                "messages": [USER, {"role": "assistant", "content": "a"}],
                "continue_final_message": True,
                "add_generation_prompt": True,
            },
            "continue_final_message",
        ),
    ],
)
def test_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        check(request(**fields))
    assert raised.value.param == param
    assert param.split(".", maxsplit=1)[0].split("[", maxsplit=1)[0] in raised.value.message


SET: dict[str, Any] = {
    "store": True,
    "moderation": {"model": "m"},
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "functions": [{"name": "f"}],
    "tool_choice": "required",
    "function_call": {"name": "f"},
    "response_format": {"type": "json_object"},
    "logprobs": True,
    "top_logprobs": 3,
    "audio": {"voice": "alloy"},
    "modalities": ["text", "audio"],
    "prediction": {"type": "content", "content": "x"},
    "web_search_options": {"search_context_size": "low"},
    "grammar": 'root ::= "a"',
    "json_schema": {"type": "object"},
    "lora": [{"id": 0, "scale": 1.0}],
    "guided_json": {"type": "object"},
    "guided_regex": "a+",
    "guided_choice": ["a"],
    "guided_grammar": "x",
    "structured_outputs": {"regex": "a"},
    "chat_template": "{{ messages }}",
    "stop_token_ids": [2],
    "min_tokens": 3,
    "thinking_token_budget": 5,
}


def test_every_unserved_field_has_an_example_here() -> None:
    assert set(SET) == set(_UNSERVED)


@pytest.mark.parametrize("field", SET)
def test_unserved_when_set(field: str) -> None:
    with pytest.raises(UnsupportedParameter, match=f"`{field}`") as raised:
        check(request(**{field: SET[field]}))
    assert raised.value.param == field and raised.value.code == "unsupported_parameter"


@pytest.mark.parametrize("field", SET)
@pytest.mark.parametrize("value", [None, False, [], {}, ""])
def test_unserved_but_not_set(field: str, value: Any) -> None:
    check(request(**{field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tool_choice", "none"),
        ("tool_choice", "auto"),
        ("function_call", "auto"),
        ("response_format", {"type": "text"}),
        ("modalities", ["text"]),
        ("top_logprobs", 0),
        ("min_tokens", 0),
    ],
)
def test_asking_for_what_is_given_anyway(field: str, value: Any) -> None:
    check(request(**{field: value}))


@pytest.mark.parametrize("field", [f for f in ChatRequest.__struct_fields__ if f not in ("messages", "model")])
def test_null_is_absent(field: str) -> None:
    assert request(**{field: None}) == request()
    check(request(**{field: None}))


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "u", "store": False, "metadata": {"a": "b"}, "service_tier": "auto", "seed": 1},
        {"safety_identifier": "x", "prompt_cache_key": "k", "verbosity": "low", "parallel_tool_calls": True},
        {"not_heard_of": [1, 2]},
        {"top_p": 0, "top_k": -1, "max_tokens": -1, "service_tier": "default", "stop": [f"{n}" for n in range(32)]},
        {"temperature": 0, "top_p": 1, "n": 16, "stop": ["a", "b", "c", "d"], "logit_bias": {"0": -100, "5": 100}},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"messages": [{"role": role, "content": "x", "name": "n"} for role in ("system", "developer", "user", "tool")]},
        {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": []}, USER]},
        {"messages": [USER, USER, {"role": "assistant", "content": "x"}]},
        {"reasoning_effort": "none"},
    ],
)
def test_accepted(fields: dict[str, Any]) -> None:
    check(request(**fields))


def test_the_newer_limit_wins() -> None:
    assert request(max_tokens=5).limit == 5
    assert request(max_tokens=5, max_completion_tokens=3).limit == 3
    assert request().limit is None
    assert request(max_tokens=5, max_completion_tokens=-1).limit is None


def test_a_limit_of_nothing_is_refused_in_the_words_of_openai() -> None:
    with pytest.raises(InvalidRequest, match=r"Invalid 'max_tokens': integer below minimum value\. Expected .* >= 1"):
        check(request(max_tokens=0))


def test_a_long_key_is_not_echoed_whole() -> None:
    with pytest.raises(InvalidRequest) as raised:
        check(request(logit_bias={"7" * 5000: 1}))
    assert len(raised.value.message) < 200


def test_metadata_is_text_by_text() -> None:
    with pytest.raises(msgspec.ValidationError, match="metadata"):
        request(metadata={"a": 1})


@pytest.mark.parametrize(("stop", "stops"), [(None, ()), ("a", ("a",)), (["a", "b"], ("a", "b"))])
def test_stops(stop: Any, stops: tuple[str, ...]) -> None:
    assert request(stop=stop).stops == stops


def test_requests_survive_the_wire() -> None:
    sent = request(tools=[], logit_bias={"3": 1.5}, stop=["x"], chat_template_kwargs={"a": [1]})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=ChatRequest) == sent
