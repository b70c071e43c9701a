"""What goes in and out of an embeddings model: the request as OpenAI's SDKs send it, and the vectors as bytes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from host.function import Operation, Usage

INPUTS_MAX = 2048
"""Inputs of one request, as at OpenAI."""

Input = Annotated[
    str | list[Any],
    msgspec.Meta(
        description="A text, a list of texts, the token ids of one text, or a list of those.",
        extra_json_schema={
            "type": ["string", "array"],
            "items": {"type": ["string", "integer", "array"], "items": {"type": "integer"}},
        },
    ),
]
"""Items are checked in `functions.embeddings.inputs`, which can say which one is wrong."""


class EmbeddingsRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The body of `POST /v1/embeddings`. `null` is the same as absent, and unknown fields are ignored."""

    model: str
    """The manifest's name or an alias of it."""
    input: Input
    """What to embed: at most 2,048 texts, or token ids of the model's own vocabulary."""
    encoding_format: str | None = None
    """`float` (the default) or `base64`: little-endian float32, which OpenAI's SDKs ask for and decode."""
    dimensions: int | None = None
    """Cut vectors to so many numbers and scale them to length 1 again; for models that were trained for it."""
    user: Any = None
    """Taken and not used."""
    truncate: bool | None = None
    """Cut over-long inputs instead of refusing them; default: what the manifest's `options.truncate` says."""
    prompt_name: str | None = None
    """The prompt of the model to put before each input, by its name in the model's own files."""
    input_type: str | None = None
    """`query` or `document`: take the model's prompt for that, if it has one. Symmetric models have none."""


class Vectors(msgspec.Struct, kw_only=True, frozen=True):
    """The vectors of one request, one behind the other in the order of its inputs."""

    data: bytes
    """Little-endian float32, `dimension` numbers for each input."""
    dimension: int
    usage: Usage
    """Tokens without padding, special tokens and prompts included."""


class Embedding(msgspec.Struct, kw_only=True, frozen=True):
    """One vector, as clients read it."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str
    """Numbers, or base64 of little-endian float32."""


class EmbeddingUsage(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct, kw_only=True, frozen=True):
    """The body of the response, as `functions.embeddings.render` writes it."""

    object: Literal["list"] = "list"
    model: str
    data: list[Embedding]
    usage: EmbeddingUsage


EMBED: Operation[EmbeddingsRequest, Vectors] = Operation(
    name="embed", request=EmbeddingsRequest, answer=Vectors, path="/v1/embeddings"
)
