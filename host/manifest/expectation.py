"""Describes what a type expects, such as `a whole number from 1 to 9, or auto`, and builds the errors for the rest."""

from __future__ import annotations

import difflib
from typing import Any

from msgspec import inspect

_PLAIN = {inspect.BoolType: "true or false", inspect.NoneType: "nothing", inspect.AnyType: "anything"}
_SHOWN_MAX = 60


def within(info: Any, steps: tuple[str | int, ...]) -> Any:
    """Return the type that stands at the end of the steps inside `info`, or None where that cannot be said."""
    if not steps:
        return info
    if isinstance(info, inspect.Metadata):
        return within(info.type, steps)
    if isinstance(info, inspect.UnionType):
        found = (within(member, steps) for member in info.types)
        return next((member for member in found if member is not None), None)
    step, rest = steps[0], steps[1:]
    if isinstance(info, inspect.StructType):
        return next((within(field.type, rest) for field in info.fields if field.encode_name == step), None)
    if isinstance(info, inspect.DictType) and isinstance(step, str):
        return within(info.value_type, rest)
    if isinstance(info, inspect.ListType | inspect.VarTupleType) and isinstance(step, int):
        return within(info.item_type, rest)
    return None


def words(info: Any) -> str:
    """Return what the type expects."""
    if isinstance(info, inspect.Metadata):
        return str((info.extra or {}).get("expected") or words(info.type))
    if isinstance(info, inspect.UnionType):
        return ", or ".join(words(member) for member in info.types if not isinstance(member, inspect.NoneType))
    if isinstance(info, inspect.LiteralType):
        return _either([str(value) for value in info.values])
    if isinstance(info, inspect.EnumType):
        return _either([str(member.value) for member in info.cls])
    if isinstance(info, inspect.IntType | inspect.FloatType):
        return ("a whole number" if isinstance(info, inspect.IntType) else "a number") + _bounds(info)
    if isinstance(info, inspect.StrType):
        return f"text that matches {info.pattern}" if info.pattern else "text, not empty" if info.min_length else "text"
    if isinstance(info, inspect.ListType | inspect.VarTupleType):
        return f"a list, each item {words(info.item_type)}"
    if isinstance(info, inspect.StructType):
        return f"keys and values ({', '.join(field.encode_name for field in info.fields) or 'of which there are none'})"
    if isinstance(info, inspect.DictType):
        return "keys and values"
    return _PLAIN.get(type(info)) or str(getattr(getattr(info, "cls", None), "__name__", "something else"))


def refusal(info: Any, value: Any, word: str | None) -> str:
    """Return the sentence that refuses `value`, which stands in the file as the bare `word` where that is known."""
    kinds = [member.type if isinstance(member, inspect.Metadata) else member for member in _members(info)]
    message = f"expected {words(info)}, got {shown(value, word)}"
    choices = [str(choice) for kind in kinds if isinstance(kind, inspect.LiteralType) for choice in kind.values]
    if word and value is not None and not isinstance(value, str) and _any(kinds, inspect.StrType):
        return f'{message}: put it in quotes, "{word}"'
    if not isinstance(value, list | dict) and _any(kinds, inspect.ListType, inspect.VarTupleType):
        return f"{message}: write it as [{'' if value is None else word or value}]"
    if isinstance(value, str) and word is None and _any(kinds, inspect.IntType, inspect.FloatType, inspect.BoolType):
        return f"{message} in quotes, which make it text"
    near = difflib.get_close_matches(str(value).lower(), choices, n=1, cutoff=0.6)
    return f"{message}; did you mean `{near[0]}`?" if near else message


def shown(value: Any, word: str | None = None) -> str:
    """Return the value as one can find it in the file."""
    if isinstance(value, dict):
        return "keys and values"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    text = word or (str(value).lower() if isinstance(value, bool) else str(value))
    text = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
    return f"`{text}`" if len(text) <= _SHOWN_MAX else f"`{text[:_SHOWN_MAX]}…`"


def _members(info: Any) -> list[Any]:
    bare = info.type if isinstance(info, inspect.Metadata) else info
    return list(bare.types) if isinstance(bare, inspect.UnionType) else [info]


def _any(kinds: list[Any], *wanted: type) -> bool:
    return any(isinstance(kind, wanted) for kind in kinds)


def _either(choices: list[str]) -> str:
    quoted = [f"`{choice}`" for choice in choices]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _bounds(info: inspect.IntType | inspect.FloatType) -> str:
    low = info.ge if info.ge is not None else info.gt
    high = info.le if info.le is not None else info.lt
    above, below = ("more than " if info.gt is not None else ""), ("less than " if info.lt is not None else "")
    if low is not None and high is not None:
        return f" from {above}{_number(low)} to {below}{_number(high)}"
    if low is not None:
        return f" above {_number(low)}" if above else f" of at least {_number(low)}"
    return "" if high is None else f" below {_number(high)}" if below else f" of at most {_number(high)}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)
