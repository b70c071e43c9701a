"""Keeps on disk what was estimated or measured of a model: one JSON file per kind and model.

Memory estimates depend on the file and the engine's version, measured speeds on the processor too. Files that cannot be
read or written are ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

Numbers = dict[str, Any]
_FORMAT = 3
"""Incremented whenever the shape of entries changes."""


class _CacheFile(msgspec.Struct, kw_only=True):
    signature: str
    entries: dict[str, Numbers] = {}


class ModelCache:
    """The entries of one kind for one model: its file, or the file in its folder that identifies it.

    `kind` names the folder below `$XDG_CACHE_HOME/coldframe`. Entries are dropped when `version` (of the engine, and of
    the processor where speed counts) or the file's size or time of change differs.
    """

    def __init__(self, kind: str, model: Path, version: str) -> None:
        real = model.resolve()
        stat = real.stat()
        self._signature = f"{_FORMAT} {version} {stat.st_size} {stat.st_mtime_ns}"
        self._file = _folder() / kind / f"{hashlib.sha256(str(real).encode()).hexdigest()[:32]}.json"
        self._content = self._read()
        self._changed = False

    def get(self, key: str) -> Numbers | None:
        """Return the entry of a key, None if there is none."""
        return self._content.entries.get(key)

    def put(self, key: str, numbers: Numbers) -> None:
        """Set an entry; `save` writes it."""
        self._content.entries[key] = numbers
        self._changed = True

    def save(self) -> None:
        """Write changed entries: temporary file, then rename."""
        if not self._changed:
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._file.parent, delete=False) as file:
                file.write(msgspec.json.encode(self._content))
            Path(file.name).replace(self._file)
        self._changed = False

    def _read(self) -> _CacheFile:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            content = msgspec.json.decode(self._file.read_bytes(), type=_CacheFile)
            if content.signature == self._signature:
                return content
        return _CacheFile(signature=self._signature)


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "coldframe"
