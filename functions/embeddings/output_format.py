"""What a request wants its inputs to become, and in which format: read from `embedding_type` and `encoding_format`."""

from __future__ import annotations

from functions.embeddings.api import EmbeddingsRequest, Kind
from host.errors import InvalidRequest

FORMATS = ("float", "base64")
_KINDS: dict[str, Kind] = {
    "dense": "dense",
    "sparse": "sparse",
    "colbert": "colbert",
    "late_interaction": "colbert",
    "multi_vector": "colbert",
}
_KNOWN = "'dense', 'sparse' or 'colbert'"


def kinds(request: EmbeddingsRequest) -> tuple[Kind, ...]:
    """Return what each input shall become, without repetitions; raises `InvalidRequest`."""
    asked = request.embedding_type
    if asked is None or asked in FORMATS:
        return ("dense",)
    if isinstance(asked, str):
        return (_kind(asked, "embedding_type"),)
    if not asked:
        raise InvalidRequest(f"embedding_type is an empty list: expected any of {_KNOWN}", param="embedding_type")
    found = [_kind(name, f"embedding_type[{at}]") for at, name in enumerate(asked)]
    return tuple(dict.fromkeys(found))


def base64(request: EmbeddingsRequest) -> bool:
    """Say whether dense vectors shall come as base64; raises `InvalidRequest` for formats that are not served."""
    asked = request.encoding_format
    if asked not in (None, *FORMATS):
        raise InvalidRequest(f"encoding_format must be 'float' or 'base64', got {asked!r}", param="encoding_format")
    if request.embedding_type in FORMATS:
        return asked == "base64" if asked is not None else request.embedding_type == "base64"
    return asked == "base64"


def several(request: EmbeddingsRequest) -> bool:
    """Say whether each embedding shall be an object with a key for each kind."""
    return isinstance(request.embedding_type, list)


def _kind(name: str, place: str) -> Kind:
    if name not in _KINDS:
        raise InvalidRequest(f"{place} must be {_KNOWN}, got {name!r}", param=place)
    return _KINDS[name]
