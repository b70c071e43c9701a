"""Models on the Hugging Face hub: from a reference to files in the local cache, over the network only when need be.

A revision that is a commit needs no network once its files are here. A branch or tag is looked up each time, and
where it was last seen is taken when the hub cannot be reached. Offline mode never opens a connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import structlog

from host.errors import HubOffline, HubUnreachable, ManifestError, ModelFileNotFound
from host.file_format import FileFormat, FileRequest
from host.function import ModelRequest, Progress, Source
from host.sources import cache, folder, reference
from host.sources.choice import choose

_log = structlog.get_logger(__name__)
_BRANCH = "main"


class HubSource(Source):
    """Repositories of `HF_ENDPOINT`, cached where `HF_HUB_CACHE` or `HF_HOME` say, read with `HF_TOKEN`."""

    name: ClassVar[str] = "hub"

    def claims(self, model: str) -> bool:
        """Claim what `host.sources.reference.kind` calls a hub reference."""
        return reference.kind(model) == "hub"

    def resolve(self, wanted: ModelRequest, progress: Progress) -> Path:
        """Return the file or folder that the engine opens, downloading what is missing.

        Raises `RepositoryNotFound`, `GatedRepository`, `ModelFileNotFound`, `HubUnreachable`, `HubOffline`, `DiskFull`.
        """
        repo, revision, request = _asked(wanted)
        repository = cache.Repository(repo)
        if cache.is_commit(revision) and (path := _cached(repository, revision, request, wanted.formats, exact=True)):
            return path
        if cache.offline():
            return _offline(repository, revision, request, wanted)
        from host.sources.download import Download
        from host.sources.hub_client import Hub

        hub = Hub()
        try:
            listing = hub.listing(repo, revision)
        except HubUnreachable as error:
            try:
                path = _cached(repository, revision, request, wanted.formats, exact=False)
            except ModelFileNotFound:
                path = None
            if path is None:
                raise error from None
            _log.warning("hub_unreachable", model=wanted.model, reason=error.message, taken="the commit last seen")
            return path
        choice = choose(listing.names, request, wanted.formats)
        Download(hub, repo, repository, listing, progress).fetch(choice.files)
        _remember(repository, revision, listing)
        return _target(repository.snapshot(listing.commit), choice.target)

    def check(self, wanted: ModelRequest) -> None:
        """Look whether reference, revision and quantization can be what they are; no network, no disk."""
        _asked(wanted)


def _asked(wanted: ModelRequest) -> tuple[str, str, FileRequest]:
    """Return repository, revision and what is wanted of it; raises `ManifestError`."""
    ref = reference.parse(wanted.model)
    revision = reference.check_revision(wanted.revision) if wanted.revision is not None else _BRANCH
    if ref.quantization and wanted.quantization and ref.quantization.lower() != wanted.quantization.lower():
        raise ManifestError(
            f"`model` asks for {ref.quantization} and `quantization` for {wanted.quantization}: leave one out",
            key="quantization",
        )
    request = FileRequest(
        where=ref.id,
        file=ref.file,
        label=ref.quantization,
        quantization=wanted.quantization,
    )
    return ref.id, revision, request


def _cached(
    repository: cache.Repository, revision: str, request: FileRequest, formats: Sequence[FileFormat], *, exact: bool
) -> Path | None:
    """Return the model out of the cache, or None when it, or a part of it, is not there.

    Which files it needs is decided by the commit's whole listing. A cache filled by another tool has none: `exact`
    then answers only for a file that was named, otherwise what lies there decides.
    """
    commit = repository.commit(revision)
    if commit is None:
        return None
    snapshot = repository.snapshot(commit)
    listing = repository.listing(commit)
    if listing is None and exact and not (request.file and (snapshot / request.file).is_file()):
        return None
    choice = choose(listing.names if listing else folder.listing(snapshot), request, formats)
    if not all((snapshot / file).exists() for file in choice.files):
        return None
    return _target(snapshot, choice.target)


def _offline(repository: cache.Repository, revision: str, request: FileRequest, wanted: ModelRequest) -> Path:
    known = repository.commit(revision)
    listed = known is not None and repository.listing(known) is not None
    why = ""
    try:
        path = _cached(repository, revision, request, wanted.formats, exact=False)
    except ModelFileNotFound as error:
        if listed:
            raise
        path, why = None, f" (in the cache, {error.message})" if known else ""
    if path is None:
        raise HubOffline(
            f"offline mode is on (HF_HUB_OFFLINE) and `{wanted.model}` is not in the local cache{why}", param="model"
        )
    return path


def _target(snapshot: Path, target: str) -> Path:
    return snapshot / target if target else snapshot


def _remember(repository: cache.Repository, revision: str, listing: cache.Listing) -> None:
    """Write down what was seen; a cache that cannot be written serves nevertheless."""
    try:
        repository.remember(revision, listing)
    except OSError as error:
        _log.info("cache_not_written", reason=error.strerror)
