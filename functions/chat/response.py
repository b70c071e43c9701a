"""Renders chat events as OpenAI's chat completion: one object, or a stream of chunks."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import time
import uuid
from collections.abc import Iterable

import msgspec

from functions.chat.api import ChatEvent, ChatRequest, Done, Finish, Text
from host.function import Usage
from host.http.sse import DONE, frame


class PromptDetails(msgspec.Struct, kw_only=True, frozen=True):
    """OpenAI's `prompt_tokens_details`."""

    cached_tokens: int = 0
    audio_tokens: int = 0


class CompletionDetails(msgspec.Struct, kw_only=True, frozen=True):
    """OpenAI's `completion_tokens_details`."""

    reasoning_tokens: int = 0
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class CompletionUsage(msgspec.Struct, kw_only=True, frozen=True):
    """OpenAI's `usage`."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails = CompletionDetails()


class AnswerMessage(msgspec.Struct, kw_only=True, frozen=True):
    """The assistant's message."""

    role: str = "assistant"
    content: str | None = None
    refusal: None = None


class Choice(msgspec.Struct, kw_only=True, frozen=True):
    """One answer."""

    index: int
    message: AnswerMessage
    finish_reason: str
    logprobs: None = None


class Completion(msgspec.Struct, kw_only=True, frozen=True):
    """The body of an answer that does not stream."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: CompletionUsage | None
    object: str = "chat.completion"


class Delta(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a chunk adds to an answer; fields that are not set are left out."""

    role: str | msgspec.UnsetType = msgspec.UNSET
    content: str | msgspec.UnsetType = msgspec.UNSET


class ChunkChoice(msgspec.Struct, kw_only=True, frozen=True):
    """One answer's part of a chunk."""

    index: int
    delta: Delta
    finish_reason: str | None = None
    logprobs: None = None


class Chunk(msgspec.Struct, kw_only=True, frozen=True):
    """One frame of a stream."""

    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | msgspec.UnsetType | None = msgspec.UNSET
    """Null in all chunks but the last where usage was asked for, else absent."""
    object: str = "chat.completion.chunk"


class Heading(msgspec.Struct, kw_only=True, frozen=True):
    """The fields that all chunks of one answer repeat."""

    id: str
    created: int
    model: str
    system_fingerprint: str


def heading(request: ChatRequest) -> Heading:
    """Return a new heading; `model` is the name the client used."""
    return Heading(
        id=f"chatcmpl-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=request.model or "",
        system_fingerprint=fingerprint(),
    )


@functools.cache
def fingerprint() -> str:
    """Return OpenAI's `system_fingerprint`: a hash of the versions of coldframe, llama-cpp-python and transformers."""
    versions = []
    for name in ("coldframe", "llama-cpp-python", "transformers"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return "b" + hashlib.sha256(" ".join(versions).encode()).hexdigest()[:10]


class ChunkRenderer:
    """Renders events as chunks: per answer a role, text, a finish; then usage if it was asked for, and `[DONE]`."""

    def __init__(self, request: ChatRequest) -> None:
        self._head = msgspec.structs.asdict(heading(request))
        self._with_usage = bool(request.stream_options and request.stream_options.include_usage)
        self._begun: set[int] = set()

    def __call__(self, answer: ChatEvent) -> Iterable[bytes]:
        """Return the frames of one event."""
        match answer:
            case Text(index=index, text=text):
                return [*self._begin(index), self._frame(index, Delta(content=text))]
            case Finish(index=index, reason=reason):
                return [*self._begin(index), self._frame(index, Delta(), reason)]
            case Done(usage=usage):
                if not self._with_usage or usage is None:
                    return []
                return [frame(Chunk(**self._head, choices=[], usage=completion_usage(usage)))]

    def end(self) -> Iterable[bytes]:
        """Return what follows the last event."""
        return [DONE]

    def _begin(self, index: int) -> list[bytes]:
        if index in self._begun:
            return []
        self._begun.add(index)
        return [self._frame(index, Delta(role="assistant", content=""))]

    def _frame(self, index: int, delta: Delta, reason: str | None = None) -> bytes:
        choices = [ChunkChoice(index=index, delta=delta, finish_reason=reason)]
        return frame(Chunk(**self._head, choices=choices, usage=None if self._with_usage else msgspec.UNSET))


def completion(request: ChatRequest, events: Iterable[ChatEvent]) -> Completion:
    """Return the whole completion of all events."""
    texts: list[list[str]] = [[] for _ in range(request.choices)]
    reasons = ["stop"] * request.choices
    usage: CompletionUsage | None = None
    for event in events:
        match event:
            case Text(index=index, text=text):
                texts[index].append(text)
            case Finish(index=index, reason=reason):
                reasons[index] = reason
            case Done(usage=counted):
                usage = completion_usage(counted) if counted else None
    choices = [
        Choice(index=index, message=AnswerMessage(content="".join(parts)), finish_reason=reasons[index])
        for index, parts in enumerate(texts)
    ]
    return Completion(**msgspec.structs.asdict(heading(request)), choices=choices, usage=usage)


def completion_usage(usage: Usage) -> CompletionUsage:
    """Return the usage in OpenAI's format."""
    return CompletionUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=PromptDetails(cached_tokens=usage.cached_tokens),
        completion_tokens_details=CompletionDetails(
            accepted_prediction_tokens=usage.accepted_tokens, rejected_prediction_tokens=usage.rejected_tokens
        ),
    )
