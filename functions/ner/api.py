"""Requests, answers and JSON bodies of `/v1/ner`: texts in, entities with their offsets out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from host.function import Usage

TEXTS_MAX = 2048
"""Texts of one request."""

Texts = Annotated[
    str | list[Any],
    msgspec.Meta(
        description="A text, or a list of texts.",
        extra_json_schema={"type": ["string", "array"], "items": {"type": "string"}},
    ),
]
"""Items are checked in `functions.ner.inputs`, whose errors name the item."""


class NerRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/ner`. `null` is the same as absent, and unknown fields are refused."""

    model: str | None = None
    """The manifest's name or an alias of it; may be left out where one model alone finds entities."""
    input: Texts | None = None
    """A text or at most 2,048 of them, of up to 262,144 tokens each."""
    texts: Texts | None = None
    """Another name for `input`."""
    aggregation_strategy: str | None = None
    """How the labels of a word's tokens are combined: `simple`, `first`, `average` or `max`; default: the manifest's,
    which is `simple`."""
    threshold: float | None = None
    """Least score of an entity, from 0 to 1; default: the manifest's, which is 0."""
    labels: list[str] | None = None
    """Keep entities of these types only."""
    redact: bool | None = None
    """Return the texts with their entities replaced as well."""
    redaction: str | None = None
    """What stands in an entity's place: `{label}` is its type, `{n}` its number among those of its type; a single
    character is repeated as often as the entity has characters. Implies `redact`."""
    stride: int | None = None
    """Tokens that neighbouring windows of a long text share, at most half of one; default: the manifest's."""
    max_length: int | None = None
    """Tokens of a window, special ones included; default: as many as the model takes. Nothing is ever cut."""
    offset_unit: str | None = None
    """What `start` and `end` count: `codepoint` (the default; as Python does), `utf16` (JavaScript, Java, C#) or `byte`
    (of the text in UTF-8; Go, Rust)."""
    user: Any = None
    """Accepted and ignored."""


class Entity(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One entity; `text` is the part of the sent text from `start` to `end`, excluding `end`."""

    text: str
    label: str
    """Its type, without the tag's prefix."""
    start: int
    end: int
    score: float
    """From 0 to 1."""
    replacement: str | None = None
    """Its replacement in the redacted text."""


class TextEntities(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The entities of one text, in their order in it; they never overlap."""

    index: int
    """Of the text, from 0."""
    entities: list[Entity]
    redacted_text: str | None = None
    """With `redact` only."""


class NerAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """The entities of a request's texts, in the order of the texts."""

    model: str = ""
    """The manifest's name."""
    data: list[TextEntities]
    usage: Usage
    """Tokens that were computed, including special ones and the overlap of windows."""


class NerUsage(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens of all texts, including special ones and the overlap of windows."""

    prompt_tokens: int
    total_tokens: int


class NerList(msgspec.Struct, kw_only=True, frozen=True):
    """The body of the response."""

    object: Literal["list"] = "list"
    model: str
    data: list[TextEntities]
    usage: NerUsage
