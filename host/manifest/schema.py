"""The JSON schema of manifests, for editors; made from the types, with each key's docstring as its description."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from host.manifest.options import PARTS, joined
from host.manifest.spec import Manifest

DRAFT = "https://json-schema.org/draft/2020-12/schema"


Own = Sequence[tuple[Sequence[str], Sequence[str], type[msgspec.Struct]]]
"""Of each function the words for its task, the engines it runs on, and the Struct of its options."""


def schema(
    options: Mapping[str, type[msgspec.Struct]] | None = None, tasks: Sequence[str] = (), own: Own = ()
) -> dict[str, Any]:
    """Return the JSON schema of a manifest, draft 2020-12.

    `options` maps engine names to the Structs of their `options`; `tasks` are the words that `task` takes, and `own`
    what functions add to an engine's options. Without them, all is left open.
    """
    structs = dict(options or {})
    pairs = [
        (words, engine, joined(structs[engine], struct))
        for words, engines, struct in own
        for engine in engines
        if engine in structs
    ]
    reached = _reached([Manifest, *structs.values(), *(struct for _, _, struct in pairs)])
    found, components = msgspec.json.schema_components(reached)
    _open_durations(components)
    references = dict(zip(reached, found, strict=True))
    for struct, reference in references.items():
        _describe(components[_name(reference)], struct)
    root = components.pop(_name(references[Manifest]))
    keys = root["properties"]
    keys["name"].pop("default")
    if tasks:
        keys["task"]["enum"] = sorted(set(tasks))
    if structs:
        keys["engine"] = {"enum": ["auto", *sorted(structs), None], **_kept(keys["engine"], "default", "description")}
        if pairs:
            root["allOf"] = [_choice(engine, references[struct], words) for words, engine, struct in pairs]
        else:
            root["allOf"] = [_choice(name, references[struct]) for name, struct in structs.items()]
        able = dict.fromkeys(struct for _, _, struct in pairs) or dict.fromkeys(structs.values())
        keys["options"]["anyOf"] = [*(references[struct] for struct in able), {"type": "null"}]
    return {"$schema": DRAFT, **root, "title": "coldframe manifest", "$defs": components}


def docs(struct: type) -> dict[str, str]:
    """Return field -> the docstring that stands below it in the class's source or in that of a base.

    A module without source, which packagers sometimes ship, has none.
    """
    found: dict[str, str] = {}
    for part in getattr(struct, PARTS, ()):
        found |= docs(part)
    for base in reversed([cls for cls in struct.__mro__ if cls not in (object, msgspec.Struct)]):
        found |= _docs(base)
    return found


def _docs(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match text:
                case ast.Expr(value=ast.Constant(value=str(words))):
                    found[field.target.id] = " ".join(words.split())
    return found


def _describe(component: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    """Give the Struct's component its docstrings, and say what the parser does: no other keys, null is absent."""
    texts = docs(struct)
    component["additionalProperties"] = False
    if struct is msgspec.Struct:
        component["description"] = "This engine has no options."
    for field in msgspec.structs.fields(struct):
        key = component["properties"][field.encode_name]
        if not field.required:
            key = component["properties"][field.encode_name] = _or_null(key)
        if field.name in texts:
            key["description"] = texts[field.name]


def _or_null(key: dict[str, Any]) -> dict[str, Any]:
    found = {name: [*value, None] if name == "enum" else value for name, value in key.items()}
    if "$ref" in found:
        return {**_kept(found, "default", "description"), "anyOf": [{"$ref": found["$ref"]}, {"type": "null"}]}
    if "anyOf" in found:
        found["anyOf"] = [*(member for member in found["anyOf"] if member != {"type": "null"}), {"type": "null"}]
    if "type" in found:
        kinds = found["type"] if isinstance(found["type"], list) else [found["type"]]
        found["type"] = [*kinds, *([] if "null" in kinds else ["null"])]
    return found


def _open_durations(value: Any) -> None:
    """Let every time be text or a number; msgspec, which sees the seconds only, says that it is a number."""
    if isinstance(value, dict):
        if value.get("$comment") == "duration":
            value["type"] = ["string", "number"]
            value.pop("$comment")
        for item in value.values():
            _open_durations(item)
    elif isinstance(value, list):
        for item in value:
            _open_durations(item)


def _choice(engine: str, reference: dict[str, Any], tasks: Sequence[str] = ()) -> dict[str, Any]:
    """Return the rule that a manifest which names this engine (and one of these tasks) has these options."""
    named: dict[str, Any] = {"properties": {"engine": {"const": engine}}, "required": ["engine"]}
    if tasks:
        named["properties"]["task"] = {"enum": sorted(tasks)}
    return {"if": named, "then": {"properties": {"options": {"anyOf": [reference, {"type": "null"}]}}}}


def _reached(structs: Sequence[type[msgspec.Struct]]) -> list[type[msgspec.Struct]]:
    """Return the Structs and every Struct that a field of theirs holds, each once."""
    found: dict[type[msgspec.Struct], None] = {}
    waiting: list[Any] = [msgspec.inspect.type_info(struct) for struct in structs]
    while waiting:
        info = waiting.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in found:
                continue
            found[info.cls] = None
            waiting += [field.type for field in info.fields]
        waiting += [*getattr(info, "types", ())]
        waiting += [getattr(info, name) for name in ("type", "item_type", "value_type") if hasattr(info, name)]
    return list(found)


def _name(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _kept(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value[name] for name in names if name in value}
