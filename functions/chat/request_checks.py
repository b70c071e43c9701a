"""Checks chat requests by OpenAI's rules, in the host; errors name the field."""

from __future__ import annotations

from typing import Any

from functions.chat.api import ChatRequest, Message, Part
from host.errors import InvalidRequest, UnsupportedParameter
from host.request_checks import check_choice

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
RESERVED = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token")
"""Variables of chat templates that `chat_template_kwargs` may not set."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
CHOICES_MAX = 16
SERVICE_TIERS = ("auto", "default")
VERBOSITIES = ("low", "medium", "high")
STOPS_MAX = 32
"""Llama.cpp's and vLLM's clients send more than the four that OpenAI takes."""
BIAS_DIGITS = 10
"""Digits of a token id in `logit_bias`; no vocabulary has more tokens."""

# Field -> lowest, highest, whether the lowest itself is allowed.
_RANGES: dict[str, tuple[float, float, bool]] = {
    "temperature": (0, 2, True),
    "top_p": (0, 1, True),
    "min_p": (0, 1, True),
    "top_k": (-1, 1 << 31, True),
    "frequency_penalty": (-2, 2, True),
    "presence_penalty": (-2, 2, True),
    "repeat_penalty": (0.01, 10, True),
    "repetition_penalty": (0.01, 10, True),
    "n": (1, CHOICES_MAX, True),
    "seed": (-(1 << 63), (1 << 63) - 1, True),
}

# Field -> values that have no effect, besides null, false and empty ones.
_UNSERVED: dict[str, tuple[Any, ...]] = {
    "store": (),
    "moderation": (),
    "tools": (),
    "functions": (),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"}, "text"),
    "logprobs": (),
    "top_logprobs": (0,),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "web_search_options": (),
    "grammar": (),
    "json_schema": (),
    "lora": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "chat_template": (),
    "stop_token_ids": (),
    "min_tokens": (0,),
    "thinking_token_budget": (),
}


def check(request: ChatRequest) -> None:
    """Raise `InvalidRequest` or `UnsupportedParameter` for the first field that is wrong."""
    _check_unserved(request)
    if not request.messages:
        raise InvalidRequest("`messages` is empty: expected at least one message", param="messages")
    for index, message in enumerate(request.messages):
        _check_message(message, f"messages[{index}]")
    for field, (low, high, closed) in _RANGES.items():
        _check_range(field, getattr(request, field), low, high, closed)
    for field in ("max_tokens", "max_completion_tokens"):
        _check_limit(field, getattr(request, field))
    _check_stop(request)
    _check_logit_bias(request.logit_bias)
    _check_ending(request)
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest("`stream_options` needs `stream: true`", param="stream_options")
    for key in request.chat_template_kwargs or {}:
        if key in RESERVED:
            raise InvalidRequest(
                f"`chat_template_kwargs` sets `{key}`: templates get that from the request itself",
                param="chat_template_kwargs",
            )
    check_choice(request.reasoning_effort, "reasoning_effort", EFFORTS)
    check_choice(request.service_tier, "service_tier", SERVICE_TIERS)
    check_choice(request.verbosity, "verbosity", VERBOSITIES)


def _check_unserved(request: ChatRequest) -> None:
    for field, no_effect in _UNSERVED.items():
        value = getattr(request, field)
        is_set = value is not None and value is not False and value not in ("", [], {}) and value not in no_effect
        if is_set:
            raise UnsupportedParameter(f"`{field}` is not supported by this model: leave it out", param=field)


def _check_message(message: Message, where: str) -> None:
    check_choice(message.role, f"{where}.role", ROLES)
    if isinstance(message.content, list):
        for index, part in enumerate(message.content):
            _check_part(part, f"{where}.content[{index}]")
    elif message.content is None and message.role != "assistant":
        raise InvalidRequest(
            f"`{where}.content` is missing: expected text or a list of text parts", param=f"{where}.content"
        )


def _check_part(part: Part, where: str) -> None:
    if part.type not in ("text", "refusal"):
        raise InvalidRequest(f"`{where}` is a part of type {part.type!r}: this model takes text only", param=where)
    if (part.text if part.type == "text" else part.refusal) is None:
        raise InvalidRequest(f"`{where}.{part.type}` is missing: expected text", param=f"{where}.{part.type}")


def _check_range(field: str, value: float | None, low: float, high: float, closed: bool) -> None:
    # Written so that NaN, which compares false with everything, is refused too.
    if value is None or (low <= value <= high and (closed or value != low)):
        return
    if high >= 1 << 31:
        expected = f"at least {low}" if low >= 0 else "a 64-bit integer"
    else:
        expected = f"from {low} to {high}" if closed else f"above {low}, up to {high}"
    raise InvalidRequest(f"`{field}` is {value}: expected {expected}", param=field)


def _check_limit(field: str, value: int | None) -> None:
    """Refuse limits with OpenAI's words; -1, which llama.cpp's clients send, is no limit."""
    if value is not None and value < 1 and value != -1:
        raise InvalidRequest(
            f"Invalid '{field}': integer below minimum value. Expected a value >= 1, but got {value} instead.",
            param=field,
        )
    _check_range(field, value, -1, 1 << 31, True)


def _check_stop(request: ChatRequest) -> None:
    if len(request.stops) > STOPS_MAX:
        raise InvalidRequest(f"`stop` has {len(request.stops)} strings: expected {STOPS_MAX} at most", param="stop")
    if "" in request.stops:
        raise InvalidRequest("`stop` has an empty string: expected at least one character each", param="stop")


def _check_logit_bias(biases: dict[str, float] | None) -> None:
    for key, bias in (biases or {}).items():
        if not (key.isascii() and key.isdigit() and len(key) <= BIAS_DIGITS):
            shown = key if len(key) <= 2 * BIAS_DIGITS else f"{key[: 2 * BIAS_DIGITS]}…"
            raise InvalidRequest(
                f'`logit_bias` has the key {shown!r}: expected token ids, as "1234"', param="logit_bias"
            )
        if not -100 <= bias <= 100:
            raise InvalidRequest(f"`logit_bias` of {key} is {bias}: expected from -100 to 100", param="logit_bias")


def _check_ending(request: ChatRequest) -> None:
    last = [message.role for message in request.messages[-2:]]
    if last == ["assistant", "assistant"]:
        raise InvalidRequest("`messages` ends with two assistant messages: expected one at most", param="messages")
    if request.continue_final_message:
        if last[-1] != "assistant":
            message = "`continue_final_message` needs the last message to be the assistant's"
            raise InvalidRequest(message, param="continue_final_message")
        if request.add_generation_prompt:
            message = "`continue_final_message` and `add_generation_prompt` exclude each other"
            raise InvalidRequest(message, param="continue_final_message")
