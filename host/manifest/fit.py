"""Prepares data from a file for its type: refuses unknown keys, drops nulls, converts durations to seconds.

Structs are followed at any depth; free mappings are left as they are.
"""

from __future__ import annotations

from typing import Any

from msgspec import inspect

from host.errors import ManifestError
from host.manifest.duration import EXPECTED, seconds
from host.manifest.expectation import shown
from host.manifest.syntax import Tree, Where
from host.suggestions import nearest


def fit(tree: Tree, data: Any, info: Any, where: Where) -> Any:
    """Return the data in the shape that `info`, a type as msgspec sees it, asks for; raises `ManifestError`."""
    word = tree.words.get(where)
    if word and isinstance(data, bool) and _chooses(info, word):
        return word
    if isinstance(info, inspect.Metadata):
        if (info.extra or {}).get("duration"):
            return _seconds(tree, data, where)
        return fit(tree, data, info.type, where)
    if isinstance(info, inspect.UnionType):
        chosen = _member(info, data)
        return data if chosen is None else fit(tree, data, chosen, where)
    if isinstance(info, inspect.StructType) and isinstance(data, dict):
        return _struct(tree, data, info, where)
    if isinstance(info, inspect.DictType) and isinstance(data, dict):
        return {key: fit(tree, value, info.value_type, (*where, key)) for key, value in data.items()}
    if isinstance(info, inspect.ListType | inspect.VarTupleType) and isinstance(data, list):
        return [fit(tree, value, info.item_type, (*where, index)) for index, value in enumerate(data)]
    return data


def _struct(tree: Tree, data: dict[str, Any], info: inspect.StructType, where: Where) -> dict[str, Any]:
    fields = {field.encode_name: field for field in info.fields}
    found: dict[str, Any] = {}
    for key, value in data.items():
        if key == info.tag_field:
            found[key] = value
        elif key not in fields:
            raise unknown(tree, key, list(fields), where)
        elif value is not None or _takes_null(fields[key].type):
            found[key] = fit(tree, value, fields[key].type, (*where, key))
    return found


def unknown(tree: Tree, key: str, known: list[str], where: Where) -> ManifestError:
    """Return the error for an unknown key, with the nearest known one."""
    return tree.error(f"unknown key `{key}`; {nearest(key, known, 'keys')}", (*where, key))


def _chooses(info: Any, word: str) -> bool:
    """Return whether `on`, `off`, `yes` or `no` is one of the words to choose from, and no boolean is wanted."""
    members = info.types if isinstance(info, inspect.UnionType) else (info,)
    literals = [member for member in members if isinstance(member, inspect.LiteralType)]
    wants_bool = any(isinstance(member, inspect.BoolType) for member in members)
    return not wants_bool and any(word in literal.values for literal in literals)


def _takes_null(info: Any) -> bool:
    if isinstance(info, inspect.Metadata):
        return _takes_null(info.type)
    if isinstance(info, inspect.UnionType):
        return info.includes_none
    return isinstance(info, inspect.NoneType | inspect.AnyType)


def _member(info: inspect.UnionType, data: Any) -> Any:
    """Return the one type of the union that this kind of data is for, or None where there is nothing to fit."""
    for member in info.types:
        if isinstance(member, inspect.Metadata):
            takes = bool((member.extra or {}).get("duration")) and data is not None
        elif isinstance(member, inspect.StructType):
            takes = isinstance(data, dict) and (member.tag_field is None or data.get(member.tag_field) == member.tag)
        elif isinstance(member, inspect.DictType):
            takes = isinstance(data, dict)
        else:
            takes = isinstance(data, list) and isinstance(member, inspect.ListType | inspect.VarTupleType)
        if takes:
            return member
    return None


def _seconds(tree: Tree, data: Any, where: Where) -> float:
    try:
        return seconds(data)
    except ValueError:
        got = shown(data, tree.words.get(where))
        raise tree.error(f"expected {EXPECTED}, got {got}", where) from None
