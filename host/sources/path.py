"""Models on this machine, by path: relative to the manifest's own folder, absolute, or from the home folder."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from host.errors import ManifestError
from host.function import ModelRequest, Progress, Source
from host.sources import folder, reference


class PathSource(Source):
    """Files and folders. `./x`, `../x`, `/x`, `~/x`, a bare `x` and `folder/x.gguf` are paths."""

    name: ClassVar[str] = "path"

    def claims(self, model: str) -> bool:
        """Claim what `host.sources.reference.kind` calls a path."""
        return reference.kind(model) == "path"

    def resolve(self, wanted: ModelRequest, progress: Progress) -> Path:
        """Return the file or folder; of a folder with several models the one wanted. Raises `ModelFileNotFound`."""
        path = _expand(wanted)
        if not path.exists():
            raise folder.missing(path, wanted, "" if path.is_absolute() and wanted.model[0] in "/~" else _NEXT_TO)
        return folder.open_model(path, wanted)

    def check(self, wanted: ModelRequest) -> None:
        """Look whether it is there."""
        if wanted.revision is not None:
            raise ManifestError("only hub repositories have revisions", key="revision")
        self.resolve(wanted, _unheard)


_NEXT_TO = " (relative paths begin at the manifest's folder)"


def _expand(wanted: ModelRequest) -> Path:
    if "\0" in wanted.model or not wanted.model.strip():
        raise ManifestError(f"expected {reference.FORMS}", key="model")
    try:
        return wanted.base / Path(wanted.model).expanduser()
    except RuntimeError:
        raise ManifestError(f"`{wanted.model}`: there is no such user's home folder", key="model") from None


def _unheard(stage: str, done: int = 0, total: int = 0) -> None:
    """Nothing is read on the way to a path."""
