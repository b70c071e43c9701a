"""The hub's cache on this disk, in huggingface_hub's own layout, so that its files are shared with every other tool.

    models--ORG--REPO/refs/REVISION              the commit a branch or tag was last seen at
    models--ORG--REPO/snapshots/COMMIT/FILE      a link to …
    models--ORG--REPO/blobs/HASH                 … the content; `HASH.incomplete` while it is on its way
    models--ORG--REPO/trees/COMMIT.coldframe.json  names, sizes and hashes of a commit's files

No network and no huggingface_hub: environment variables are read at each call.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from pathlib import Path

import msgspec

_COMMIT = re.compile(r"[0-9a-f]{40}")
_TRUE = ("1", "on", "yes", "true")


class Entry(msgspec.Struct, kw_only=True, frozen=True):
    """One file of a commit."""

    name: str
    size: int | None = None
    """Bytes."""
    sha1: str | None = None
    """Git's hash of the content, for files stored in git."""
    sha256: str | None = None
    """For large files."""
    etag: str | None = None
    """For the files of mirrors that list no hashes."""

    @property
    def blob(self) -> str | None:
        """Return the name of the content in the cache: the hash that the hub also sends as ETag."""
        return self.sha256 or self.sha1 or self.etag


class Listing(msgspec.Struct, kw_only=True, frozen=True):
    """All files of one commit of a repository."""

    commit: str
    files: tuple[Entry, ...]

    @property
    def names(self) -> list[str]:
        """Return the files' names."""
        return [entry.name for entry in self.files]


def root() -> Path:
    """Return the cache's folder as `HF_HUB_CACHE`, `HF_HOME` or `XDG_CACHE_HOME` say now."""
    for variable, inner in (("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if value := os.environ.get(variable):
            return Path(os.path.expandvars(value)).expanduser() / inner
    xdg = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(xdg).expanduser() / "huggingface" / "hub"


def offline() -> bool:
    """Return whether `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` is on now."""
    return any(os.environ.get(name, "").lower() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def is_commit(revision: str) -> bool:
    """Return whether a revision is a whole commit hash: one that never moves."""
    return _COMMIT.fullmatch(revision) is not None


class Repository:
    """One repository's part of the cache."""

    def __init__(self, repo: str) -> None:
        self.root = root()
        self.folder = self.root / f"models--{repo.replace('/', '--')}"
        self.locks = self.root / ".locks" / self.folder.name

    def commit(self, revision: str) -> str | None:
        """Return the commit that a revision was last seen at, or the revision itself when it is one."""
        if is_commit(revision):
            return revision
        try:
            return (self.folder / "refs" / revision).read_text().strip() or None
        except OSError:
            return None

    def remember(self, revision: str, listing: Listing) -> None:
        """Write down where a revision points, and the files of that commit."""
        if not is_commit(revision):
            _write(self.folder / "refs" / revision, listing.commit.encode())
        _write(self._tree(listing.commit), msgspec.json.encode(listing))

    def listing(self, commit: str) -> Listing | None:
        """Return the files of a commit as the hub last listed them."""
        try:
            return msgspec.json.decode(self._tree(commit).read_bytes(), type=Listing)
        except (OSError, msgspec.DecodeError):
            return None

    def snapshot(self, commit: str) -> Path:
        """Return the folder of a commit's files, whether or not it is there."""
        return self.folder / "snapshots" / commit

    def blob(self, name: str) -> Path:
        """Return the place of a content."""
        return self.folder / "blobs" / name

    def link(self, blob: Path, commit: str, name: str) -> None:
        """Make the content appear as a file of the commit; copies where the disk has no links."""
        place = self.snapshot(commit) / name
        if place.exists():
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_name(f".{uuid.uuid4().hex}.tmp")
        try:
            fresh.symlink_to(os.path.relpath(blob, place.parent))
        except OSError:
            shutil.copyfile(blob, fresh)
        fresh.replace(place)

    def _tree(self, commit: str) -> Path:
        return self.folder / "trees" / f"{commit}.coldframe.json"


def _write(place: Path, content: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{uuid.uuid4().hex}.tmp")
    fresh.write_bytes(content)
    fresh.replace(place)
