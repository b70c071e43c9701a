"""From a manifest's `model` to a file or folder here, by the first source that claims it; what the host calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from host.errors import ManifestError
from host.function import ModelRequest, Progress, Source
from host.sources import reference

_log = structlog.get_logger(__name__)


def resolve(sources: Sequence[Source], wanted: ModelRequest, progress: Progress) -> Path:
    """Return the file or folder; blocking, may download. Raises `ManifestError` and the `SourceError`s."""
    source, wanted = claimant(sources, wanted)
    return source.resolve(wanted, progress)


def check(sources: Sequence[Source], wanted: ModelRequest) -> None:
    """Raise what can be seen to be wrong at once and without network."""
    source, wanted = claimant(sources, wanted)
    source.check(wanted)


def claimant(sources: Sequence[Source], wanted: ModelRequest) -> tuple[Source, ModelRequest]:
    """Return the source that resolves the model, and what to ask it for; raises `ManifestError` when none does.

    The text decides. One case needs a look at the disk: `a/b` or `a/b/c` is a hub reference, unless a file or folder
    of that name lies next to the manifest. That one wins, is asked for as `./a/b`, and the log says so.
    """
    if _is_path(wanted):
        wanted = msgspec.structs.replace(wanted, model=f"./{wanted.model}")
    elif _lies_here(wanted):
        _log.info("model_is_a_path", model=wanted.model, hint="a path next to the manifest, not a hub repository")
        wanted = msgspec.structs.replace(wanted, model=f"./{wanted.model}")
    for source in sources:
        if source.claims(wanted.model):
            return source, wanted
    raise ManifestError(f"no source knows {wanted.model!r}; expected {reference.FORMS}", key="model")


def _is_path(wanted: ModelRequest) -> bool:
    """Return whether it is `folder/file` with an ending that some engine takes: no repository is named like that."""
    if reference.kind(wanted.model) != "hub" or ":" in wanted.model or wanted.model.count("/") != 1:
        return False
    return bool(wanted.endings) and wanted.model.lower().endswith(tuple(wanted.endings))


def _lies_here(wanted: ModelRequest) -> bool:
    if reference.kind(wanted.model) != "hub" or ":" in wanted.model or ".." in wanted.model.split("/"):
        return False
    try:
        return (wanted.base / wanted.model).exists()
    except (OSError, ValueError):
        return False
