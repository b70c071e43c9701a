"""The type of a manifest's `options`: the fields of the engine's and of the function's options in one Struct."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from host.manifest.document import Document

PARTS = "__parts__"
"""The attribute of a joined Struct that holds the Structs it was made of."""


@functools.cache
def joined(engine: type[msgspec.Struct], function: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return the Struct of the keys of both; raises `TypeError` for a key that both have."""
    names = [{field.name for field in msgspec.structs.fields(part)} for part in (engine, function)]
    if both := sorted(names[0] & names[1]):
        raise TypeError(f"{engine.__name__} and {function.__name__} both have the option `{both[0]}`")
    parts = (engine, function)
    for part, other in ((engine, function), (function, engine)):
        if not msgspec.structs.fields(other) and msgspec.structs.fields(part):
            return part
    fields = [_field(field) for part in parts for field in msgspec.structs.fields(part)]
    checks = [part.__post_init__ for part in parts if hasattr(part, "__post_init__")]

    def check(self: Any) -> None:
        for one in checks:
            one(self)

    name = f"{engine.__name__.removesuffix('Options')}{function.__name__}"
    namespace = {PARTS: parts, **({"__post_init__": check} if checks else {})}
    return msgspec.defstruct(
        name, fields, namespace=namespace, kw_only=True, frozen=True, forbid_unknown_fields=True, module=__name__
    )


def read(
    document: Document, engine: type[msgspec.Struct], function: type[msgspec.Struct]
) -> tuple[msgspec.Struct, msgspec.Struct]:
    """Return a manifest's `options` as the engine's Struct and the function's; raises `ManifestError`."""
    found = document.convert(joined(engine, function), ("options",))
    return _part(found, engine), _part(found, function)


def _part(whole: msgspec.Struct, part: type[msgspec.Struct]) -> msgspec.Struct:
    return part(**{field.name: getattr(whole, field.name) for field in msgspec.structs.fields(part)})


def _field(field: msgspec.structs.FieldInfo) -> tuple[str, Any, Any]:
    default = msgspec.field(
        name=field.encode_name,
        default=field.default,
        **({} if field.default_factory is msgspec.NODEFAULT else {"default_factory": field.default_factory}),
    )
    return field.name, field.type, default
