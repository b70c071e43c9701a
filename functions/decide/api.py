"""Requests, answers and JSON bodies of `/v1/decisions`, as OpenAI's SDK sends and reads them.

`null` is the same as absent, and unknown fields are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from host.function import Usage

QUESTIONS_MAX = 400
CHOICES_MAX = 255

Value = str | bool
"""A choice. A string and a boolean with the same text are two choices."""


class Part(msgspec.Struct, kw_only=True, frozen=True):
    """One part of a content: text, or JSON that is read as text."""

    type: str
    text: str | None = None
    data: Any = None
    """Of `input_json`: an object, or a list of objects."""
    refusal: str | None = None


class InputItem(msgspec.Struct, kw_only=True, frozen=True):
    """A message, a tool call, or its output; `type` is which, by default a message."""

    type: str | None = None
    role: str | None = None
    content: str | list[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    """Of `function_call`."""
    input: str | None = None
    """Of `custom_tool_call`."""
    output: str | list[Part] | None = None


class ChoiceSpec(msgspec.Struct, kw_only=True, frozen=True):
    """One of the answers to choose from."""

    value: Annotated[Any, msgspec.Meta(description="A text, true or false.")]
    """A `Value`; its type is checked in `functions.decide.request_checks`: declared here, a 0 would become `False`."""
    description: str | None = None


class LevelSpec(msgspec.Struct, kw_only=True, frozen=True):
    """One level of a score."""

    label: str
    description: str | None = None


class Question(msgspec.Struct, kw_only=True, frozen=True):
    """A question: `predicate` (how likely it is true), `choice` among `choices`, or `score` on `levels`."""

    type: str
    instructions: str | list[Part]
    name: str | None = None
    choices: list[ChoiceSpec] | None = None
    """2 to 255, each once."""
    levels: list[LevelSpec] | None = None
    """2 to 255, from the lowest to the highest."""


class DecisionRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The body of `POST /v1/decisions`."""

    model: str | None = None
    """The manifest's name or an alias of it; absent, null and empty are the one model that decides."""
    input: str | list[InputItem]
    """The text or conversation that all questions are about."""
    questions: list[Question]
    """1 to 400."""
    prompt_cache_key: Any = None
    """Accepted and ignored: prefixes are found by their tokens."""
    prompt_cache_options: Any = None
    """The same."""
    safety_identifier: Any = None
    """The same."""


class PredicateAnswer(msgspec.Struct, kw_only=True, frozen=True, tag="predicate"):
    """How likely the statement is true."""

    name: str | None = None
    probability: float


class ChoiceProbability(msgspec.Struct, kw_only=True, frozen=True):
    """How likely one choice is the right one."""

    value: Value
    probability: float


class ChoiceAnswer(msgspec.Struct, kw_only=True, frozen=True, tag="choice"):
    """The most likely choice; `confidence` is its probability, `probabilities` are in the order of the choices."""

    name: str | None = None
    choice: Value
    confidence: float
    probabilities: list[ChoiceProbability]


class ScoreProbability(msgspec.Struct, kw_only=True, frozen=True):
    """How likely one level is the right one; `value` is its place, from 0."""

    label: str
    value: int
    probability: float


class ScoreAnswer(msgspec.Struct, kw_only=True, frozen=True, tag="score"):
    """The expected value of the levels, from 0; `confidence` is the most likely level's probability."""

    name: str | None = None
    score: float
    confidence: float
    probabilities: list[ScoreProbability]


class RefusalAnswer(msgspec.Struct, kw_only=True, frozen=True, tag="refusal"):
    """The model cannot answer this question."""

    name: str | None = None


Answer = PredicateAnswer | ChoiceAnswer | ScoreAnswer | RefusalAnswer


class Decisions(msgspec.Struct, kw_only=True, frozen=True):
    """The answers of one request, in the order of its questions."""

    answers: list[Answer]
    usage: Usage
    cache_write_tokens: int = 0
    """Tokens of the prompt that were computed and written to the prefix cache."""


class InputTokensDetails(msgspec.Struct, kw_only=True, frozen=True):
    """Input tokens that were read from the cache, and those that were written to it."""

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(msgspec.Struct, kw_only=True, frozen=True):
    """Always 0: nothing is generated."""

    reasoning_tokens: Literal[0] = 0


class DecisionUsage(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens that were computed: the input and the tokens that all questions share count once."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: Literal[0] = 0
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    total_tokens: int


class Decision(msgspec.Struct, kw_only=True, frozen=True):
    """The body of the response."""

    answers: list[Answer]
    model: str
    usage: DecisionUsage
