"""The request of OpenAI's chat completions, and the events of an answer, from which renderers make the response.

`null` is the same as absent, and unknown fields are ignored.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from host.function import Usage

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class Part(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A content part of a message; only text is served."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None


class Message(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One message of a conversation."""

    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class StreamOptions(msgspec.Struct, kw_only=True, frozen=True):
    """OpenAI's `stream_options`."""

    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The body of POST /v1/chat/completions, with the sampling fields that local servers add to OpenAI's."""

    messages: list[Message]
    model: str | None = None
    """Absent, null and empty are the one model that answers chats, where there is only one."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    reasoning_effort: str | None = None
    service_tier: str | None = None
    verbosity: str | None = None
    metadata: dict[str, str] | None = None

    top_k: int | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None
    ignore_eos: bool | None = None
    adapter: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    # Known, and not served: `request_checks` refuses them when they are set.
    store: Any = None
    moderation: Any = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    audio: Any = None
    modalities: Any = None
    prediction: Any = None
    web_search_options: Any = None
    grammar: Any = None
    json_schema: Any = None
    lora: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    structured_outputs: Any = None
    chat_template: Any = None
    stop_token_ids: Any = None
    min_tokens: Any = None
    thinking_token_budget: Any = None

    @property
    def choices(self) -> int:
        """How many answers to generate."""
        return self.n or 1

    @property
    def limit(self) -> int | None:
        """The most tokens of an answer; `max_completion_tokens` goes first, and -1 is none."""
        limit = self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens
        return None if limit == -1 else limit

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class Text(msgspec.Struct, frozen=True, tag="text", array_like=True):
    """Text that is added to the answer `index`."""

    index: int
    text: str


class Finish(msgspec.Struct, frozen=True, tag="finish", array_like=True):
    """The answer `index` is complete."""

    index: int
    reason: FinishReason


class Done(msgspec.Struct, frozen=True, tag="done", array_like=True):
    """All answers are complete; always the last event."""

    usage: Usage | None


ChatEvent = Text | Finish | Done
