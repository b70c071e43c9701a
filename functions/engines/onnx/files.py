"""Finds the files of an ONNX model: the graph, its external data files, and the folder with config and tokenizer.

The locations of external data are read directly from the protobuf, without loading weights. Field numbers are those of
onnx.proto, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from functions.engines.checkpoint.folder import Folder
from functions.engines.onnx import file_format
from host.errors import ColdframeError, LoadFailed

_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "entry": {1: "key", 2: "value"},
}
"""Message -> field -> what message is in it, as far as they lead to the places of weights."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}


class OnnxFiles:
    """One model's files. `file` is the graph, `folder` has `config.json` and `tokenizer.json`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        above = file.parent.parent
        beside = file.parent.name == "onnx" and not (file.parent / "config.json").is_file()
        self.folder = Folder(above if beside else file.parent)

    @classmethod
    def at(cls, path: str | Path, quantization: str | None) -> OnnxFiles:
        """Return the files of a graph, or of the one in a folder that `quantization` chooses; raises `LoadFailed`."""
        path = Path(path)
        if path.is_file():
            return cls(path)
        names = [file.relative_to(path).as_posix() for pattern in ("*", "onnx/*") for file in path.glob(pattern)]
        try:
            return cls(path / file_format.choose(names, quantization, "the folder"))
        except LoadFailed:
            raise
        except ColdframeError as error:
            raise LoadFailed(error.message) from None

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of the graph, and of all weights beside it.

        Raises `LoadFailed` for a file that is no ONNX model or shorter than it says, and for weights that are missing
        or would lie outside of the folder.
        """
        return self.file.stat().st_size, sum(
            self._external_file(place).stat().st_size for place in self._external_locations()
        )

    def _external_locations(self) -> list[str]:
        """Return where the graph says that weights lie, relative to it."""
        with self.file.open("rb") as file:
            try:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    return sorted(_locations(data))
            except (ValueError, IndexError):
                raise LoadFailed(f"{self.file.name} is not an ONNX model, or its download is incomplete") from None

    def _external_file(self, place: str) -> Path:
        parts = PurePosixPath(place).parts
        if not parts or ".." in parts or place.startswith("/") or PureWindowsPath(place).anchor or "\\" in place:
            raise LoadFailed(f"{self.file.name} has weights at {place!r}, which is outside of the model's folder")
        there = self.file.parent / place
        if not there.is_file():
            raise LoadFailed(f"{place} is missing: {self.file.name} has its weights in it")
        return there


def _locations(data: mmap.mmap) -> set[str]:
    """Return the values of all `location` entries; raises `ValueError` or `IndexError` for what is no protobuf."""
    found: set[str] = set()
    left: list[tuple[str, int, int]] = [("model", 0, len(data))]
    graphs = 0
    while left:
        kind, start, end = left.pop()
        if kind == "entry":
            entry = {name: data[begin:stop] for name, begin, stop in _fields(data, kind, start, end)}
            if entry.get("key") == b"location":
                found.add(entry.get("value", b"").decode())
            continue
        graphs += kind == "graph"
        left += _fields(data, kind, start, end)
    if not graphs:
        raise ValueError("no graph")
    return found


def _fields(data: mmap.mmap, kind: str, at: int, end: int) -> Iterator[tuple[str, int, int]]:
    """Yield the messages inside of one, each as (kind, first byte, byte behind its last)."""
    inside = _INSIDE[kind]
    while at < end:
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == _BYTES:
            length, at = _varint(data, at)
            if at + length > end:
                raise ValueError("a message ends early")
            if (name := inside.get(tag >> 3)) is not None:
                yield name, at, at + length
            at += length
        elif wire == _VARINT:
            _, at = _varint(data, at)
        else:
            at += _FIXED.get(wire) or _unknown(wire)
    if at != end:
        raise ValueError("a field ends late")


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    """Return the number that begins at a byte, and where the next field begins."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("no number")


def _unknown(wire: int) -> int:
    raise ValueError(f"wire type {wire}")
