"""Checks and parses the inputs of embeddings requests.

`check` runs in the host; `parse_inputs` and `input_type` expect requests that passed it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from functions.embeddings import content_parts, output_format, request_dialects
from functions.embeddings.api import INPUTS_MAX, EmbeddingsRequest
from functions.embeddings.content_parts import Image
from host.errors import InvalidRequest, UnsupportedParameter
from host.request_checks import check_choice, check_count, check_range, check_text, item_params, json_type

QUERY = ("query", "search_query")
DOCUMENT = ("document", "search_document", "passage")

Input = str | list[int] | Image
"""One input: a text, a text's token ids, or an image."""


def check(request: EmbeddingsRequest) -> None:
    """Raise `InvalidRequest` for a request that no model could answer."""
    _check_inputs(request.input)
    request_dialects.check(request)
    output_format.is_base64(request)
    types = output_format.embedding_types(request)
    size = "dimensions" if request.output_dimension is None else "output_dimension"
    check_range(request.dimensions, size, 1)
    if request.dimensions is not None and "dense" not in types:
        raise InvalidRequest(f"{size} cuts dense vectors, and {types[0]} ones were requested", param=size)
    if request.input_type not in DOCUMENT:
        check_choice(request.input_type, "input_type", (*QUERY, "document"))
    if request.input_type is not None and request.prompt_name is not None:
        raise UnsupportedParameter("set prompt_name or input_type, not both", param="prompt_name")


def input_type(request: EmbeddingsRequest) -> Literal["query", "document", ""]:
    """Return the type of the inputs, by `input_type` or the name of a prompt for it; empty for neither."""
    name = request.input_type or request.prompt_name
    return "query" if name in QUERY else "document" if name in DOCUMENT else ""


def parse_inputs(value: str | list[Any] | dict[str, Any]) -> list[Input]:
    """Return a request's `input` as a list of texts and images, or of lists of token ids."""
    items = value if isinstance(value, list) and not _is_int(value[0]) else [value]
    return [_parse(item, f"input[{at}]") for at, item in enumerate(items)]


def _parse(item: Any, param: str) -> Input:
    return content_parts.parse(item, param) if isinstance(item, dict) else item


def _check_inputs(value: str | list[Any] | dict[str, Any]) -> None:
    items: list[Any] = [value] if isinstance(value, str | dict) else value
    if items and _is_int(items[0]):
        _check_ids(items, "input")
        return
    check_count(items, "input", INPUTS_MAX)
    check_item = _check_ids if isinstance(items[0], list) else _check_part
    if not isinstance(items[0], str | dict | list):
        raise _wrong("input[0]", items[0], "a text, a token id, a list of token ids or an object")
    for param, item in zip(item_params("input", items), items, strict=True):
        check_item(item, param)


def _check_part(item: Any, param: str) -> None:
    if isinstance(item, dict):
        content_parts.parse(item, param)
    elif isinstance(item, str):
        check_text(item, param)
    else:
        raise _wrong(param, item, "a text, like input[0]")


def _check_ids(value: Any, param: str) -> None:
    if not isinstance(value, list):
        raise _wrong(param, value, "a list of token ids, like input[0]")
    if not value:
        raise InvalidRequest(f"{param} is an empty list of token ids", param=param)
    try:
        least = min(msgspec.convert(value, list[int], strict=True))
    except msgspec.ValidationError:
        at = next(at for at, item in enumerate(value) if not _is_int(item))
        raise _wrong(f"{param}[{at}]", value[at], "a token id, like the items before it") from None
    if least < 0:
        at = next(at for at, item in enumerate(value) if item < 0)
        raise InvalidRequest(f"{param}[{at}] is {value[at]}: token ids are not negative", param=f"{param}[{at}]")


def _is_int(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _wrong(param: str, item: Any, right: str) -> InvalidRequest:
    return InvalidRequest(f"{param} must be {right}, got {json_type(item)}", param=param)
