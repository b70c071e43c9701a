"""A file or folder on this machine, opened as a model: the same choice among its files as among a repository's.

Messages call it by the manifest's words, never by its path.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from host.errors import ModelFileNotFound
from host.file_format import FileRequest
from host.function import ModelRequest
from host.sources.choice import choose, near

_FILES_MAX = 5000


def open_model(path: Path, wanted: ModelRequest) -> Path:
    """Return the file to load, or the folder where folders are loaded; raises `ModelFileNotFound`, `ManifestError`."""
    request = FileRequest(where=f"`{wanted.model}`", quantization=wanted.quantization)
    if path.is_dir():
        names = listing(path)
        if not names:
            raise ModelFileNotFound(f"`{wanted.model}` is an empty folder", param="model")
        if not (wanted.required or any(one.contains(names) for one in wanted.formats)):
            return path
        target = choose(names, request, wanted.formats).target
        return path / target if target else path
    known = any(one.is_file(path.name) for one in wanted.formats)
    siblings = [entry.name for entry in path.parent.iterdir()] if known else [path.name]
    request = msgspec.structs.replace(request, file=path.name)
    return path.with_name(choose(siblings, request, wanted.formats).target)


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
