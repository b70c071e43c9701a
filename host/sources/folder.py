"""A file or folder on this machine, opened as a model: the same choice among its files as among a repository's.

Messages call it by the manifest's words, never by its path.
"""

from __future__ import annotations

import os
from pathlib import Path

from host.errors import ModelFileNotFound
from host.function import ModelRequest
from host.sources import checkpoint, gguf, onnx
from host.sources.choice import Wish, choose, near

_FILES_MAX = 5000


def open_model(path: Path, wanted: ModelRequest) -> Path:
    """Return the file to load, or the folder where folders are loaded; raises `ModelFileNotFound`, `ManifestError`."""
    wish = Wish(where=f"`{wanted.model}`", quantization=wanted.quantization, suffixes=wanted.suffixes)
    if path.is_dir():
        names = listing(path)
        if not names:
            raise ModelFileNotFound(f"`{wanted.model}` is an empty folder", param="model")
        served = checkpoint.has_weights(names) or any(gguf.is_gguf(name) or onnx.is_onnx(name) for name in names)
        if not (wanted.suffixes or served):
            return path
        target = choose(names, wish).target
        return path / target if target else path
    siblings = [entry.name for entry in path.parent.iterdir()] if gguf.is_gguf(path.name) else [path.name]
    choice = choose(siblings, Wish(where=wish.where, file=path.name, quantization=wish.quantization))
    return path.with_name(choice.target)


def missing(path: Path, wanted: ModelRequest, hint: str = "") -> ModelFileNotFound:
    """Return the error for a path that is not there, with the names beside it that are most like it."""
    folder = path.parent
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    beside = near(path.name, names) if names else ""
    return ModelFileNotFound(f"`{wanted.model}`: no such file or folder{hint}{beside}", param="model")


def listing(folder: Path) -> list[str]:
    """Return the names of the files below a folder, with `/` between the parts."""
    names: list[str] = []
    for here, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        if len(Path(here).relative_to(folder).parts) >= 6:
            folders.clear()
        names += [(Path(here) / name).relative_to(folder).as_posix() for name in sorted(files)]
        if len(names) > _FILES_MAX:
            break
    return names
