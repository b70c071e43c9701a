"""A request's inputs, checked item by item: what is wrong is told with its index. It knows no model."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from functions.embeddings import content_parts, dialects, output_format
from functions.embeddings.api import INPUTS_MAX, EmbeddingsRequest
from functions.embeddings.content_parts import Image
from host.errors import InvalidRequest, UnsupportedParameter

QUERY = ("query", "search_query")
DOCUMENT = ("document", "search_document", "passage")

Given = str | list[int] | Image
"""One input: a text, a text's token ids, or an image."""


def check(request: EmbeddingsRequest) -> None:
    """Raise `InvalidRequest` for all that can be seen to be wrong without the model."""
    listed(request.input)
    dialects.check(request)
    output_format.base64(request)
    kinds = output_format.kinds(request)
    size = "dimensions" if request.output_dimension is None else "output_dimension"
    if request.dimensions is not None and request.dimensions < 1:
        raise InvalidRequest(f"{size} must be at least 1, got {request.dimensions}", param=size)
    if request.dimensions is not None and "dense" not in kinds:
        raise InvalidRequest(f"{size} cuts dense vectors, and {kinds[0]} ones were asked for", param=size)
    if request.input_type is not None:
        if request.input_type not in QUERY + DOCUMENT:
            raise InvalidRequest(
                f"input_type must be 'query' or 'document', got {request.input_type!r}", param="input_type"
            )
        if request.prompt_name is not None:
            raise UnsupportedParameter("set prompt_name or input_type, not both", param="prompt_name")


def asked(request: EmbeddingsRequest) -> Literal["query", "document", ""]:
    """Return what the inputs are said to be, by `input_type` or by the name of a prompt for it; empty for neither."""
    said = request.input_type or request.prompt_name
    return "query" if said in QUERY else "document" if said in DOCUMENT else ""


def listed(given: str | list[Any] | dict[str, Any]) -> list[Given]:
    """Return the inputs as a list of texts and images, or of lists of token ids; raises `InvalidRequest`."""
    if isinstance(given, str | dict):
        given = [given]
    if not given:
        raise InvalidRequest("input is an empty list: send at least one text", param="input")
    if _is_int(given[0]):
        return [_ids(given, "input")]
    if len(given) > INPUTS_MAX:
        raise InvalidRequest(f"input has {len(given)} items, at most {INPUTS_MAX} are taken at once", param="input")
    if isinstance(given[0], str | dict):
        return [_part(item, f"input[{at}]") for at, item in enumerate(given)]
    if isinstance(given[0], list):
        return [_ids(item, f"input[{at}]") for at, item in enumerate(given)]
    raise _wrong("input[0]", given[0], "a text, a token id, a list of token ids or an object")


def _part(item: Any, place: str) -> str | Image:
    if isinstance(item, dict):
        return content_parts.read(item, place)
    if not isinstance(item, str):
        raise _wrong(place, item, "a text, like input[0]")
    if not item:
        raise InvalidRequest(f"{place} is an empty text", param=place)
    return item


def _ids(given: Any, place: str) -> list[int]:
    if not isinstance(given, list):
        raise _wrong(place, given, "a list of token ids, like input[0]")
    if not given:
        raise InvalidRequest(f"{place} is an empty list of token ids", param=place)
    try:
        found = msgspec.convert(given, list[int], strict=True)
    except msgspec.ValidationError:
        at = next(at for at, item in enumerate(given) if not _is_int(item))
        raise _wrong(f"{place}[{at}]", given[at], "a token id, like the items before it") from None
    if min(found) < 0:
        at = next(at for at, item in enumerate(found) if item < 0)
        raise InvalidRequest(f"{place}[{at}] is {found[at]}: token ids are not negative", param=f"{place}[{at}]")
    return found


def _is_int(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _wrong(place: str, item: Any, right: str) -> InvalidRequest:
    names = {"str": "a text", "int": "a number", "float": "a number with a fraction", "NoneType": "null"}
    names |= {"bool": "true or false", "dict": "an object", "list": "a list"}
    got = names.get(type(item).__name__, type(item).__name__)
    return InvalidRequest(f"{place} must be {right}, got {got}", param=place)
