"""Prefixes of one model on disk: llama.cpp's state files, each with a label and a checksum at its end.

Writes are atomic: temporary file, then rename. Files that are broken or exceed the limit are deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

_MAGIC = b"coldkept"
_END = struct.Struct("<32sI8s")
"""Trailer: checksum of everything before it, length of the label, magic."""
_LABEL_MAX = 64 << 20
_CHUNK = 1 << 20
_STALE = 60.0
"""Age in seconds after which a temporary file was left by a process that died."""
_ENDING, _PART = ".kept", ".part"

Writer = Callable[[Path], int]
"""Writes a file and returns its size in bytes; 0 on failure."""


class Label(msgspec.Struct, kw_only=True, frozen=True):
    """Metadata of a stored prefix."""

    key: str
    """Model file, library version and context parameters: states are only valid for the same key."""
    adapter: str | None
    weights: str
    """Path of the model file; prefixes of models that are gone are deleted."""
    packed: bytes
    """Token ids, 32 bits each."""
    size: int = 0
    """Bytes of the state, before the label."""

    @property
    def tokens(self) -> list[int]:
        """The token ids."""
        return array("i", self.packed).tolist()


class StoredPrefix(msgspec.Struct, kw_only=True, frozen=True):
    """One stored prefix."""

    path: Path
    label: Label
    size: int
    used: int
    """Time of last use, in nanoseconds since the epoch."""


class PrefixStore:
    """The stored prefixes of one model file."""

    def __init__(self, weights: Path, key: str) -> None:
        self._weights = str(weights.resolve())
        self._key = key
        self._folder = folder() / hashlib.sha256(self._weights.encode()).hexdigest()[:32]

    def entries(self) -> list[StoredPrefix]:
        """Return the prefixes with this key, the most recently used first. Broken files are deleted."""
        found = []
        for path in self._files():
            try:
                stat = path.stat()
                label = _label(path, stat.st_size)
            except FileNotFoundError:
                continue  # another worker was faster
            except (OSError, ValueError, msgspec.MsgspecError):
                discard(path)
                continue
            if label.key == self._key:
                found.append(StoredPrefix(path=path, label=label, size=stat.st_size, used=stat.st_mtime_ns))
        return sorted(found, key=lambda entry: -entry.used)

    def put(self, tokens: Sequence[int], adapter: str | None, write: Writer, used: int | None = None) -> bool:
        """Store a prefix; one that is stored already is only marked as used. Returns whether it is stored.

        `used` is when, in nanoseconds: files are written faster than clocks of file systems go on.
        """
        when = used or time.time_ns()
        label = Label(key=self._key, adapter=adapter, weights=self._weights, packed=array("i", tokens).tobytes())
        name = hashlib.sha256(msgspec.msgpack.encode(label)).hexdigest()[:40]
        place = self._folder / f"{name}{_ENDING}"
        if place.is_file():
            with contextlib.suppress(OSError):
                os.utime(place, ns=(when, when))
                return True
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, beside = tempfile.mkstemp(dir=self._folder, suffix=_PART)
        os.close(handle)
        part = Path(beside)
        try:
            size = write(part)
            if not size or part.stat().st_size != size:
                return False
            _seal(part, msgspec.structs.replace(label, size=size))
            os.utime(part, ns=(when, when))
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
        return True

    def trim(self, bound: int) -> None:
        """Delete the least recently used files, of whatever key, until the folder has at most `bound` bytes."""
        sized: list[tuple[float, int, Path]] = []
        for path in self._files():
            with contextlib.suppress(OSError):
                stat = path.stat()
                sized.append((stat.st_mtime_ns, stat.st_size, path))
        total = sum(size for _, size, _ in sized)
        for _, size, path in sorted(sized):
            if total <= bound:
                return
            discard(path)
            total -= size

    def _files(self) -> list[Path]:
        """Return the complete files; stale temporary files are deleted."""
        there: list[Path] = []
        with contextlib.suppress(OSError):
            there = list(self._folder.iterdir())
        for path in there:
            with contextlib.suppress(OSError):
                if path.suffix == _PART and time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()
        return [path for path in there if path.suffix == _ENDING]


def is_intact(entry: StoredPrefix) -> bool:
    """Return whether a file matches its checksum; reads all of it."""
    try:
        with entry.path.open("rb") as file:
            digest = _digest(file, entry.size - _END.size)
            return bool(_END.unpack(file.read(_END.size))[0] == digest)
    except (OSError, struct.error):
        return False


def discard(path: Path) -> None:
    """Delete a file; errors are ignored."""
    with contextlib.suppress(OSError):
        path.unlink()


def sweep() -> None:
    """Delete the prefixes of models whose files are gone."""
    with contextlib.suppress(OSError):
        for folder_ in folder().iterdir():
            paths = [path for path in folder_.iterdir() if path.suffix == _ENDING]
            with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
                if paths and not Path(_label(paths[0], paths[0].stat().st_size).weights).exists():
                    for path in paths:
                        discard(path)
            with contextlib.suppress(OSError):
                folder_.rmdir()  # only where it is empty


def folder() -> Path:
    """Return the folder of all stored prefixes, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "coldframe" / "prefixes"


def _label(path: Path, size: int) -> Label:
    """Read a file's label; raises `ValueError` for other files."""
    with path.open("rb") as file:
        if size < _END.size:
            raise ValueError("too short")
        file.seek(size - _END.size)
        _, length, magic = _END.unpack(file.read(_END.size))
        if magic != _MAGIC or length > min(_LABEL_MAX, size - _END.size):
            raise ValueError("not a stored prefix")
        file.seek(size - _END.size - length)
        label = msgspec.msgpack.decode(file.read(length), type=Label)
        if len(label.packed) % array("i").itemsize or not label.packed:
            raise ValueError("no tokens")
        if label.size != size - _END.size - length:
            raise ValueError("another length")
        return label


def _seal(part: Path, label: Label) -> None:
    """Append label and checksum."""
    packed = msgspec.msgpack.encode(label)
    with part.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(packed)
        length = file.tell()
        file.flush()
        file.seek(0)
        digest = _digest(file, length)
        file.seek(length)
        file.write(_END.pack(digest, len(packed), _MAGIC))


def _digest(file: BinaryIO, length: int) -> bytes:
    """Return the checksum of the next `length` bytes; it ends where they do."""
    found = hashlib.sha256()
    while length > 0:
        data = file.read(min(_CHUNK, length))
        if not data:
            break
        found.update(data)
        length -= len(data)
    return found.digest()
