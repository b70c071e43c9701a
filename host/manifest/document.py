"""A YAML file as plain data that still knows on which line each key stands; what is wrong is told with that line.

It knows YAML and msgspec types, and nothing of what a manifest means.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from host.errors import ManifestError

T = TypeVar("T")
Path_ = tuple[str | int, ...]
_STEP = re.compile(r"\.([A-Za-z0-9_]+)|\[(\d+|\.\.\.)\]")
_BYTES_MAX = 1 << 20


class Document:
    """One parsed file: `data`, and the line of every key and item in it."""

    def __init__(self, file: Path, data: dict[str, Any], lines: dict[Path_, int]) -> None:
        self.file = file
        self.data = data
        self.lines = lines

    def error(self, message: str, path: Path_ = ()) -> ManifestError:
        """Return the error that says `message` about the key at `path`, with the line it stands on."""
        line = next((self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), None)
        return ManifestError(message, file=self.file, line=line, key=_dotted(path) or None)

    def convert(self, type_: type[T], at: Path_ = ()) -> T:
        """Return the part of the data at `at` as `type_`; unknown keys name the nearest known one."""
        data: Any = self.data
        for step in at:
            data = data[step]
        self.refuse_unknown(data, type_, at)
        try:
            return msgspec.convert(data, type_, strict=True)
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            raise self.error(_plain(message), at + _steps(where)) from None

    def refuse_unknown(self, data: Any, type_: Any, at: Path_ = ()) -> None:
        """Raise for the first key that the Struct `type_`, or a Struct inside it, does not have."""
        if not (isinstance(data, dict) and isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
            return
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(type_)}
        for key, value in data.items():
            if key not in fields:
                near = difflib.get_close_matches(str(key), fields, n=1, cutoff=0.5)
                hint = f"; did you mean `{near[0]}`?" if near else f"; known keys: {', '.join(sorted(fields)) or 'none'}"
                raise self.error(f"unknown key `{key}`{hint}", (*at, key))
            self.refuse_unknown(value, fields[key], (*at, key))


def read(file: Path) -> Document:
    """Parse one YAML file holding one mapping; raises `ManifestError`."""
    try:
        if file.stat().st_size > _BYTES_MAX:
            raise ManifestError("the file is larger than 1 MiB: this is no manifest", file=file)
        node = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ManifestError(f"cannot be read: {error.strerror}", file=file) from None
    except UnicodeDecodeError:
        raise ManifestError("is not UTF-8 text", file=file) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise ManifestError(f"is not YAML: {problem}", file=file, line=mark.line + 1 if mark else None) from None
    if not isinstance(node, yaml.MappingNode):
        raise ManifestError("expected keys and values such as `task: chat`", file=file, line=1)
    lines: dict[Path_, int] = {}
    document = Document(file, {}, lines)
    document.data = _data(document, node, ())
    return document


def _data(document: Document, node: yaml.Node, path: Path_) -> Any:
    """Return the node as plain data, writing down the line of every key on the way."""
    document.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_data(document, item, (*path, index)) for index, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        try:
            return yaml.SafeLoader("").construct_object(node, deep=True)  # type: ignore[no-untyped-call]
        except (yaml.YAMLError, ValueError) as error:
            raise document.error(f"is not a plain YAML value: {getattr(error, 'problem', error)}", path) from None
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = _data(document, key_node, (*path, "?"))
        document.lines.pop((*path, "?"), None)
        if not isinstance(key, str):
            raise document.error(f"keys are words, got {key!r}: put it in quotes", path)
        here = (*path, key)
        if key in found:
            raise document.error(f"the key `{key}` stands here twice (first on line {document.lines[here]})", here)
        document.lines[here] = key_node.start_mark.line + 1
        found[key] = _data(document, value_node, here)
    return found


def _steps(where: str) -> Path_:
    """Turn msgspec's `.queue.size` or `.aliases[0]` into a path."""
    return tuple(int(i) if i.isdigit() else name or i for name, i in _STEP.findall(where))


def _dotted(path: Path_) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _plain(message: str) -> str:
    """Return msgspec's message in the words of a YAML author."""
    words = {"`str`": "text", "`int`": "a whole number", "`float`": "a number", "`bool`": "true or false"}
    for word, plain in {**words, "`object`": "keys and values", "`array`": "a list", "`null`": "nothing"}.items():
        message = message.replace(word, plain)
    return message[:1].lower() + message[1:]
