"""A YAML file as typed values: converts data to Structs; errors have file, line, key and what would be right."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from host.errors import ManifestError
from host.manifest import expectation
from host.manifest.fit import fit
from host.manifest.syntax import Tree, Where, parse

T = TypeVar("T")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_MISSING = re.compile(r"Object missing required field `([^`]+)`")
_BYTES_MAX = 1 << 18


class Document:
    """One parsed file: `data`, and the line of every key and item in it."""

    def __init__(self, tree: Tree) -> None:
        self.file = tree.file
        self.data = tree.data
        self.lines = tree.lines
        self._tree = tree

    def error(self, message: str, path: Where = ()) -> ManifestError:
        """Return the error that says `message` about the key at `path`, with the line it stands on."""
        return self._tree.error(message, path)

    def convert(self, type_: type[T], at: Where = ()) -> T:
        """Return the part of the data at `at` as `type_`; raises `ManifestError`.

        A part that is absent or null is an empty mapping. In Structs, unknown keys are refused, null counts as absent
        where the type has no null, and times such as `5m` become seconds.
        """
        info = msgspec.inspect.type_info(type_)
        data = fit(self._tree, self._part(at), info, at)
        try:
            return msgspec.convert(data, type_, strict=True)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            if isinstance(error.__cause__, ValueError):  # of a Struct that refuses what its fields say together
                raise self.error(message, at + _steps(place)) from None
            raise self._refusal(message, info, at, _steps(place)) from None

    def _part(self, at: Where) -> Any:
        data: Any = self.data
        for step in at:
            data = data.get(step) if isinstance(data, dict) and isinstance(step, str) else data[step]
            data = {} if data is None else data
        return data

    def _refusal(self, message: str, info: Any, at: Where, steps: Where) -> ManifestError:
        """Return msgspec's error in terms of YAML."""
        where = at + steps
        missing = _MISSING.match(message)
        if missing:
            return self.error(f"the key `{missing[1]}` is required", (*where, missing[1]))
        wanted = expectation.within(info, steps)
        if wanted is None or "..." in steps:
            return self.error(message[:1].lower() + message[1:], where)
        value = self._part(at)
        for step in steps:
            value = value[step]
        return self.error(expectation.refusal(wanted, value, self._tree.words.get(where)), where)


def read(file: Path) -> Document:
    """Parse one YAML file holding one mapping; raises `ManifestError`."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ManifestError("is not a file", file=file)
        if status.st_size > _BYTES_MAX:
            raise ManifestError(f"the file is larger than {_BYTES_MAX >> 10} KiB: this is no manifest", file=file)
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ManifestError(f"cannot be read: {error.strerror}", file=file) from None
    except UnicodeDecodeError:
        raise ManifestError("is not UTF-8 text", file=file) from None
    return Document(parse(text, file))


def _steps(where: str) -> Where:
    """Turn msgspec's `.queue.size` or `.aliases[0]` into a path."""
    return tuple(int(i) if i.isdigit() else name or i for name, i in _STEP.findall(where.rstrip("`")))
