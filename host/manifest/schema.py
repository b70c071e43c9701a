"""The JSON schema of manifests, for editors; made from the type, with each key's docstring as its description."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from typing import Any

import msgspec

from host.manifest.spec import Manifest, Queue


def schema(options: Mapping[str, type[msgspec.Struct]] | None = None) -> dict[str, Any]:
    """Return the JSON schema; `options` maps engine names to the Structs of their `options`."""
    structs: list[type[msgspec.Struct]] = [Manifest, Queue, *(options or {}).values()]
    _, components = msgspec.json.schema_components(structs)
    for struct in structs:
        for key, text in docs(struct).items():
            components[struct.__name__]["properties"][key]["description"] = text
    root = components.pop("Manifest")
    if options:
        anyway = [{"$ref": f"#/$defs/{struct.__name__}"} for struct in options.values()]
        root["properties"]["options"]["anyOf"] = anyway
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "coldframe manifest",
        **_local(root),
        "$defs": _local(components),
    }


def docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return field -> the docstring that stands below it in the class's source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(struct)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for field, text in zip(body, body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
                found[field.target.id] = " ".join(text.value.value.split())
    return found


def _local(value: Any) -> Any:
    """Return the schema with msgspec's default reference paths pointing into `$defs`."""
    if isinstance(value, dict):
        return {key: _local(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_local(item) for item in value]
    return value
