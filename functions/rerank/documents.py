"""Converts documents as clients send them, texts or objects, to the texts that a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from host.errors import InvalidRequest
from host.request_checks import json_type

_DEFAULT = ("text",)


def document_texts(documents: Sequence[Any], rank_fields: Sequence[str] | None, name: str) -> list[str]:
    """Return the text of each document; raises `InvalidRequest` naming its index in the field `name`.

    Of an object the `rank_fields` are read in their order. Several become a line `field: value` each, which is how
    Cohere's guide for structured documents writes them; a single one is its value.
    """
    if rank_fields is not None and not rank_fields:
        raise InvalidRequest(
            "rank_fields is an empty list: name at least one field, or leave it out", param="rank_fields"
        )
    fields = tuple(rank_fields or _DEFAULT)
    return [_text(item, fields, f"{name}[{at}]") for at, item in enumerate(documents)]


def _text(item: Any, fields: tuple[str, ...], place: str) -> str:
    if isinstance(item, str):
        return item
    if not isinstance(item, dict):
        raise InvalidRequest(f"{place} must be a text or an object, got {json_type(item)}", param=place)
    found = [(field, _value(item[field], f"{place}.{field}")) for field in fields if item.get(field) is not None]
    if not found:
        names = " or ".join(f"`{field}`" for field in fields)
        hint = "" if fields != _DEFAULT else "; rank_fields names others"
        raise InvalidRequest(f"{place} has no field {names}{hint}", param=place)
    if len(fields) == 1:
        return found[0][1]
    return "\n".join(f"{field}: {value}" for field, value in found)


def _value(value: Any, place: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{place} must be a text or a number, got {json_type(value)}", param=place)
    return str(value)
