"""Generates the tables of manifest keys in the documentation from the types.

`python -m host.manifest.tables PAGE…` rewrites each page between `<!-- keys: NAME -->` and `<!-- end -->`. Engines and
functions are those of the installed plug-ins.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

from host.manifest.expectation import words
from host.manifest.schema import docs
from host.manifest.spec import Manifest, Queue

_PLACE = re.compile(r"(<!-- keys: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def structs(distribution: str = "coldframe") -> dict[str, type[msgspec.Struct]]:
    """Return what has a table: for our own distribution the manifest and its queue; each engine's and function's
    options.
    """
    found: dict[str, type[msgspec.Struct]] = (
        {"manifest": Manifest, "queue": Queue} if distribution == "coldframe" else {}
    )
    for entry in entry_points(group="coldframe"):
        if entry.dist is not None and entry.dist.name == distribution:
            plugin = _plugin(entry)
            for engine in getattr(plugin, "coldframe_engines", list)():
                found[engine.name] = engine.options
            for function in getattr(plugin, "coldframe_functions", list)():
                if msgspec.structs.fields(function.options):
                    found[function.name] = function.options
    return found


def table(struct: type[msgspec.Struct]) -> str:
    """Return the Markdown table of a Struct's fields: key, what it takes, default, meaning."""
    texts = docs(struct)
    rows = ["| key | takes | default | meaning |", "| --- | --- | --- | --- |"]
    for field in msgspec.structs.fields(struct):
        takes = words(msgspec.inspect.type_info(field.type)).replace("|", "\\|")
        rows.append(f"| `{field.encode_name}` | {takes} | {_default(field)} | {texts.get(field.name, '')} |")
    return "\n".join(rows)


def rewritten(page: str, tables: dict[str, str]) -> str:
    """Return the page with every table between its two comments; raises `KeyError` for one that nobody makes."""
    return _PLACE.sub(lambda found: f"{found[1]}{tables[found[2]]}\n{found[3]}", page)


def _plugin(entry: Any) -> Any:
    try:
        return entry.load()
    except ImportError:  # a plug-in whose library is missing has no table to check
        return None


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None or value == "":
        return "none"
    if isinstance(value, msgspec.Struct):
        return "as below"
    extra = getattr(msgspec.inspect.type_info(field.type), "extra", None) or {}
    if extra.get("duration"):
        return f"`{value / 60:g}m`" if value >= 120 and value % 60 == 0 else f"`{value:g}s`"
    plain = msgspec.to_builtins(value, str_keys=True)
    text = plain if isinstance(plain, str) and "\n" not in plain else msgspec.json.encode(plain).decode()
    return f"`{text}`"


def rewrite(paths: Iterable[Path], tables: dict[str, str]) -> None:
    """Write the tables anew in every page that has some; raises `KeyError` for one that nobody makes."""
    for path in paths:
        page = path.read_text(encoding="utf-8")
        new = rewritten(page, tables)
        if new != page:
            path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    rewrite(map(Path, sys.argv[1:]), {name: table(struct) for name, struct in structs().items()})
