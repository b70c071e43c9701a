"""Parses the types and the format of vectors from a request's `embedding_type` and `encoding_format`."""

from __future__ import annotations

from functions.embeddings.api import EmbeddingsRequest, EmbeddingType
from host.errors import InvalidRequest

FORMATS = ("float", "base64")
_TYPES: dict[str, EmbeddingType] = {
    "dense": "dense",
    "sparse": "sparse",
    "colbert": "colbert",
    "late_interaction": "colbert",
    "multi_vector": "colbert",
}
_KNOWN = "'dense', 'sparse' or 'colbert'"


def embedding_types(request: EmbeddingsRequest) -> tuple[EmbeddingType, ...]:
    """Return the types of vectors to compute, each once; raises `InvalidRequest`."""
    option = request.embedding_type
    if option is None or option in FORMATS:
        return ("dense",)
    if isinstance(option, str):
        return (_parse(option, "embedding_type"),)
    if not option:
        raise InvalidRequest(f"embedding_type is an empty list: expected any of {_KNOWN}", param="embedding_type")
    types = [_parse(name, f"embedding_type[{at}]") for at, name in enumerate(option)]
    return tuple(dict.fromkeys(types))


def is_base64(request: EmbeddingsRequest) -> bool:
    """Return whether dense vectors are sent as base64; raises `InvalidRequest` for other formats."""
    option = request.encoding_format
    if option not in (None, *FORMATS):
        raise InvalidRequest(f"encoding_format must be 'float' or 'base64', got {option!r}", param="encoding_format")
    if request.embedding_type in FORMATS:
        return option == "base64" if option is not None else request.embedding_type == "base64"
    return option == "base64"


def is_object(request: EmbeddingsRequest) -> bool:
    """Return whether each embedding is an object with a key for each type."""
    return isinstance(request.embedding_type, list)


def _parse(name: str, param: str) -> EmbeddingType:
    if name not in _TYPES:
        raise InvalidRequest(f"{param} must be {_KNOWN}, got {name!r}", param=param)
    return _TYPES[name]
