"""A model folder: its JSON files and safetensors shards. Reads headers only, never weights or pickles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from host.errors import LoadFailed

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.ckpt")
_HEADER_MAX = 100 << 20
_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}


class Folder:
    """One folder of a model; error messages name files relative to it, never its path."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise LoadFailed("this engine takes a folder with config.json, got a file or nothing at all")

    def inside(self, name: str) -> Folder:
        """Return the folder `name` in this one (this one itself for an empty name); it cannot lead outside."""
        there = (self.path / name).resolve()
        if not there.is_relative_to(self.path.resolve()):
            raise LoadFailed(f"modules.json names {name!r}, which is outside of the model's folder")
        if not there.is_dir():
            raise LoadFailed(f"modules.json names the folder {name!r}, which is not there")
        return Folder(there)

    def has(self, name: str) -> bool:
        """Return whether the file exists."""
        return (self.path / name).is_file()

    def json(self, name: str) -> Any:
        """Return what is in a JSON file, or None where there is none; raises `LoadFailed` for what is not JSON."""
        try:
            return msgspec.json.decode((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LoadFailed(f"{name} cannot be read: {error}") from None

    def mapping(self, name: str) -> dict[str, Any]:
        """Return the object in a JSON file, empty where there is no such file."""
        found = self.json(name)
        if not isinstance(found, dict | None):
            raise LoadFailed(f"{name} should hold a JSON object")
        return found or {}

    def config(self) -> dict[str, Any]:
        """Return `config.json`; raises `LoadFailed` where it is missing."""
        if not self.has("config.json"):
            raise LoadFailed("config.json is missing: this is not the folder of a Transformers model")
        return self.mapping("config.json")

    def shards(self) -> list[Path]:
        """Return the safetensors files that hold the model's weights; raises `LoadFailed` when any is missing."""
        if self.has(_SINGLE):
            return [self.path / _SINGLE]
        index = self.mapping(_INDEX)
        if not index:
            pickle = next((name for name in _PICKLES if self.has(name)), None)
            hint = f"; {pickle} is a pickle, which can run code and is not loaded: save it as safetensors"
            raise LoadFailed(f"{_SINGLE} is missing{hint if pickle else ''}")
        names = sorted(set(index.get("weight_map", {}).values()))
        missing = [name for name in names if not self.has(name)]
        if missing or not names:
            raise LoadFailed(f"{_INDEX} names files that are missing: {', '.join(missing) or 'none named'}")
        return [self.path / name for name in names]

    def weights(self, itemsize: int, matrices: int | None = None) -> int:
        """Return the bytes of all tensors when floats take `itemsize` bytes each, from the files' headers alone.

        `matrices` are the bytes of floats in what is multiplied, where they differ: in tensors of two dimensions that
        are not embeddings.
        """
        return sum(_tensors(path, itemsize, itemsize if matrices is None else matrices) for path in self.shards())


def _tensors(path: Path, itemsize: int, matrices: int) -> int:
    """Return one safetensors file's bytes: 8 bytes of header length, then the header as JSON."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_HEADER_MAX, path.stat().st_size - 8):
            raise LoadFailed(f"{path.name} is not a safetensors file, or its download is incomplete")
        raw = file.read(length)
    try:
        header: dict[str, Any] = msgspec.json.decode(raw)
        tensors = {key: entry for key, entry in header.items() if key != "__metadata__"}
        ends = [entry["data_offsets"][1] for entry in tensors.values()]
        sizes = [_size(entry, matrices if _multiplied(key, entry) else itemsize) for key, entry in tensors.items()]
    except (msgspec.DecodeError, KeyError, TypeError, IndexError, AttributeError):
        raise LoadFailed(f"{path.name} has a broken safetensors header") from None
    if 8 + length + max(ends, default=0) > path.stat().st_size:
        raise LoadFailed(f"{path.name} is shorter than its header says: its download is incomplete")
    return sum(sizes)


def _multiplied(name: str, entry: dict[str, Any]) -> bool:
    return len(entry.get("shape", ())) == 2 and "embed" not in name


def _size(entry: dict[str, Any], itemsize: int) -> int:
    begin, end = entry["data_offsets"]
    stored = _SIZES.get(entry["dtype"])
    return int(end - begin) if stored is None else int(end - begin) // stored * itemsize
