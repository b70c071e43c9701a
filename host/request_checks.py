"""Checks that functions' requests have in common: each raises `InvalidRequest`, naming the field and what is right.

For `Operation.check`. `param` is a field's name as the client wrote it, such as `input` or `texts[3]`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from host.errors import InvalidRequest

_JSON_TYPES = {
    bool: "true or false",
    int: "a number",
    float: "a number with a fraction",
    str: "a text",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def json_type(value: Any) -> str:
    """Return what JSON calls a value, with its article: `a text`, `a number`, `null`, `an object`."""
    return _JSON_TYPES.get(type(value), type(value).__name__)


def quoted(allowed: Collection[str]) -> str:
    """Return the allowed words as a sentence lists them: `'a', 'b' or 'c'`."""
    *rest, last = map(repr, allowed)
    return f"{', '.join(rest)} or {last}" if rest else last


def item_params(param: str, value: object) -> list[str]:
    """Return what each item of a field is called: `input[0]`, `input[1]`, …; the field alone where it is no list."""
    return [f"{param}[{at}]" for at in range(len(value))] if isinstance(value, list) else [param]


def check_text(value: Any, param: str) -> None:
    """Refuse what is not a text, and an empty one."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{param} must be a text, got {json_type(value)}", param=param)
    if not value:
        raise InvalidRequest(f"{param} is an empty text", param=param)


def check_count(items: Sequence[Any], param: str, most: int, item: str = "text") -> None:
    """Refuse an empty list, and one of more than `most` items; `item` is what an item is called."""
    if not items:
        raise InvalidRequest(f"{param} is an empty list: send at least one {item}", param=param)
    if len(items) > most:
        raise InvalidRequest(f"{param} has {len(items)} items, at most {most} are taken at once", param=param)


def check_choice(value: str | None, param: str, allowed: Collection[str], hint: str = "") -> None:
    """Refuse a word that is none of the allowed ones; None is absent, and fine. `hint` ends the message."""
    if value is not None and value not in allowed:
        raise InvalidRequest(f"{param} must be {quoted(allowed)}, got {value!r}{hint}", param=param)


def check_range(value: float | None, param: str, low: float, high: float | None = None, hint: str = "") -> None:
    """Refuse a number outside `low` to `high`, both allowed, and NaN; None is absent, and fine."""
    if value is None or (low <= value and (high is None or value <= high)):
        return
    right = f"at least {low:g}" if high is None else f"from {low:g} to {high:g}"
    raise InvalidRequest(f"{param} must be {right}, got {value}{hint}", param=param)


def check_exclusive(request: object, first: str, second: str) -> None:
    """Refuse a request that sets two fields which exclude each other."""
    if getattr(request, first) is not None and getattr(request, second) is not None:
        raise InvalidRequest(f"set {first} or {second}, not both", param=second)


def set_field(request: object, names: Sequence[str], item: str = "a text or a list of texts") -> str:
    """Return which one of several names of the same field is set; refuses a request that sets none or two of them."""
    found = [name for name in names if getattr(request, name) is not None]
    if not found:
        raise InvalidRequest(f"{names[0]} is missing: send {item}", param=names[0])
    if len(found) > 1:
        raise InvalidRequest(f"set {found[0]} or {found[1]}, not both", param=found[1])
    return found[0]
