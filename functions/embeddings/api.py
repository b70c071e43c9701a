"""Requests and JSON bodies of `/v1/embeddings`, and the vectors as bytes between worker and host."""

from __future__ import annotations

import array
import sys
from typing import Annotated, Any, Literal

import msgspec

from host.function import Usage

INPUTS_MAX = 2048
"""Inputs of one request, as at OpenAI."""

TASKS = {"retrieval.query": "query", "retrieval.passage": "document"}
"""Jina's `task` as `input_type`."""

EmbeddingType = Literal["dense", "sparse", "colbert"]
"""One vector for an input, weights for vocabulary entries, or a vector for each token."""

Input = Annotated[
    str | list[Any] | dict[str, Any],
    msgspec.Meta(
        description=(
            "A text, a list of texts, the token ids of one text, or a list of those. For models of CLIP's kind also "
            'objects: `{"text": …}` or `{"image": …}` with a data URI or base64, mixed with texts as you like.'
        ),
        extra_json_schema={
            "type": ["string", "array", "object"],
            "items": {"type": ["string", "integer", "array", "object"], "items": {"type": "integer"}},
        },
    ),
]
"""Items are checked in `functions.embeddings.inputs`, whose errors name the item."""


class EmbeddingsRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The body of `POST /v1/embeddings`. `null` is the same as absent, and unknown fields are ignored.

    Fields of other dialects are copied to the field of the same meaning; those that are not served are refused when
    set (`functions.embeddings.dialects`).
    """

    model: str | None = None
    """The manifest's name or an alias of it; may be left out where one model alone embeds."""
    input: Input
    """What to embed: at most 2,048 texts or images, or token ids of the vocabulary that the manifest names."""
    encoding_format: str | None = None
    """`float` (the default) or `base64`: little-endian float32, which OpenAI's SDKs ask for and decode. It is for dense
    vectors; sparse ones and those of tokens are always numbers."""
    embedding_type: str | list[str] | None = None
    """`dense` (the default), `sparse` or `colbert` (also `late_interaction`), where the model has it. A list asks for
    several, and each `embedding` is then an object with a key for each. `float` and `base64`, as Jina's clients send
    them, are dense vectors in that format."""
    dimensions: int | None = None
    """Cut vectors to so many numbers and scale them to length 1 again; for models that were trained for it."""
    user: Any = None
    """Accepted and ignored."""
    truncate: bool | None = None
    """Cut over-long inputs instead of refusing them; default: what the manifest's `options.truncate` says."""
    prompt_name: str | None = None
    """The prompt of the model to put before each input, by its name in the model's own files."""
    input_type: str | None = None
    """`query` or `document`: take the model's prompt for that, if it has one, and its route for it, if it has several.
    Symmetric models have neither."""
    output_dimension: int | None = None
    """The same as `dimensions` at Voyage and Cohere."""
    truncation: bool | None = None
    """The same as `truncate` at Voyage."""
    task: str | None = None
    """The same as `input_type` at Jina: `retrieval.query` or `retrieval.passage`; others are not served."""
    normalized: bool | None = None
    """Jina's; only `true`, and for models whose vectors have length 1: vectors are never scaled otherwise."""
    normalize: bool | None = None
    """The same at TEI."""
    output_dtype: Any = None
    """Voyage's; only `float`."""
    embedding_types: Any = None
    """Cohere's; only `float`, or a list of it."""
    truncation_direction: str | None = None
    """TEI's; only `right`, an input's end, is cut."""
    truncation_side: str | None = None
    """The same at vLLM."""
    late_chunking: Any = None
    """Jina's; not served."""
    return_multivector: Any = None
    """Jina's; `embedding_type` is served instead."""
    prompt: Any = None
    """Mixedbread's; `prompt_name` is served instead."""
    max_length: Any = None
    """Not served: inputs are cut at the model's own length, or the manifest's."""
    max_tokens: Any = None
    """Cohere's name for it; not served."""
    truncate_prompt_tokens: Any = None
    """vLLM's name for it; not served."""

    def __post_init__(self) -> None:
        """Copy fields of other dialects to the field of the same meaning, where that is not set."""
        for name, value in (
            ("dimensions", self.output_dimension),
            ("truncate", self.truncation),
            ("input_type", TASKS.get(self.task or "")),
        ):
            if value is not None and getattr(self, name) is None:
                msgspec.structs.force_setattr(self, name, value)


class SparseVectors(msgspec.Struct, kw_only=True, frozen=True):
    """Sparse vectors, concatenated."""

    counts: list[int]
    """How many weights each input has."""
    indices: bytes
    """Little-endian int32: ids of the vocabulary, ascending for each input."""
    values: bytes
    """Little-endian float32: the weight of each."""


class TokenVectors(msgspec.Struct, kw_only=True, frozen=True):
    """Vectors of tokens (ColBERT), concatenated."""

    counts: list[int]
    """How many vectors each input has."""
    data: bytes
    """Little-endian float32, `dimension` numbers for each token."""
    dimension: int


class Vectors(msgspec.Struct, kw_only=True, frozen=True):
    """The vectors of one request, concatenated in the order of its inputs."""

    model: str = ""
    """The manifest's name."""
    data: bytes = b""
    """Dense vectors: little-endian float32, `dimension` numbers for each input; empty where none were requested."""
    dimension: int = 0
    usage: Usage
    """Tokens without padding, special tokens and prompts included; for an image its patches."""
    sparse: SparseVectors | None = None
    colbert: TokenVectors | None = None

    def rows(self) -> list[list[float]]:
        """Return the dense vectors as numbers, `dimension` for each input; empty where there are none."""
        if not self.dimension:
            return []
        numbers = array.array("f", self.data)
        if sys.byteorder == "big":
            numbers.byteswap()
        return [numbers[at : at + self.dimension].tolist() for at in range(0, len(numbers), self.dimension)]


class Embedding(msgspec.Struct, kw_only=True, frozen=True):
    """The embedding of one input."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: Annotated[
        Any,
        msgspec.Meta(
            description=(
                "Dense: numbers, or base64 of little-endian float32. Sparse: an object with `indices` and `values`. "
                "ColBERT: a list of vectors. Where `embedding_type` was a list: an object with a key for each."
            ),
            extra_json_schema={"type": ["array", "string", "object"], "items": {"type": ["number", "array"]}},
        ),
    ]


class EmbeddingUsage(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct, kw_only=True, frozen=True):
    """The body of the response, as `functions.embeddings.response` writes it."""

    object: Literal["list"] = "list"
    model: str
    data: list[Embedding]
    usage: EmbeddingUsage
