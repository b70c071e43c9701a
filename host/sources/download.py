"""Bytes from the hub into the cache: only the files chosen, each verified, each going on where it was cut off.

huggingface_hub throws a partial file away when its download fails; here it is kept over restarts, as `HASH.incomplete`
beside the finished contents, and under the library's own lock.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol, Self

from host.errors import DiskFull, HubUnreachable, SourceError
from host.function import Progress
from host.sources.cache import Entry, Listing, Repository
from host.sources.hub_client import Hub

MARGIN = 128 << 20
"""Bytes of the disk that a download leaves free."""
WINDOW = 16 << 30
"""Bytes asked for in one request: hubs refuse to send very large files in one piece."""
PATIENCE = (1.0, 2.0, 4.0, 8.0)
"""Seconds to wait before each further attempt that follows one without a new byte."""
_EVERY = 0.1
"""Seconds between two reports of progress."""


class Hash(Protocol):
    """What `hashlib` makes."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes in."""

    def hexdigest(self) -> str:
        """Return the hash of all bytes so far."""


class Meter:
    """Bytes done of bytes in all, reported at most every tenth of a second, and at the end."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0
        self._told = 0.0

    def move(self, count: int, *, now: bool = False) -> None:
        """Count bytes; a negative number takes back what must be read again."""
        self.done += count
        moment = time.monotonic()
        if now or moment - self._told >= _EVERY or self.done >= self.total:
            self._told = moment
            self.progress("download", self.done, self.total)


class Download:
    """One download of some files of one commit. An exception out of `progress` stops it, and loses nothing."""

    def __init__(self, hub: Hub, repo: str, repository: Repository, listing: Listing, progress: Progress) -> None:
        self.hub, self.repo, self.repository, self.listing = hub, repo, repository, listing
        self.progress = progress

    def fetch(self, names: Sequence[str]) -> None:
        """Bring the files into the commit's snapshot. Raises `DiskFull`, `HubUnreachable`, any `SourceError`."""
        commit, wanted = self.listing.commit, set(names)
        chosen = [entry for entry in self.listing.files if entry.name in wanted]
        snapshot = self.repository.snapshot(commit)
        missing = [entry for entry in chosen if not (snapshot / entry.name).exists()]
        missing = [self.hub.described(self.repo, commit, entry) for entry in missing]
        if not missing:
            return
        with _disk():
            self._check_space(missing)
            meter = Meter(self.progress, sum(entry.size or 0 for entry in missing))
            meter.move(0, now=True)
            for entry in missing:
                blob = self.repository.blob(str(entry.blob))
                self._bring(entry, blob, meter)
                self.repository.link(blob, commit, entry.name)

    def _check_space(self, missing: list[Entry]) -> None:
        """Raise `DiskFull` when the bytes still to come do not fit beside `MARGIN`."""
        blobs = {str(entry.blob): entry.size or 0 for entry in missing}
        places = {self.repository.blob(name): size for name, size in blobs.items()}
        needed = sum(max(0, size - _size(_partial(place))) for place, size in places.items() if not place.exists())
        free = shutil.disk_usage(_existing(self.repository.root)).free
        if needed and needed + MARGIN > free:
            raise DiskFull(
                f"{self.repo} needs {_megabytes(needed)} more on the disk of the model cache and {_megabytes(MARGIN)} "
                f"to spare; {_megabytes(free)} are free",
                extra={"needed_bytes": needed, "free_bytes": free},
            )

    def _bring(self, entry: Entry, blob: Path, meter: Meter) -> None:
        """Make the content be there: at once, by another process's download, or by this one's."""
        with self._alone(blob.name):
            if blob.exists():
                meter.move(entry.size or 0)
                return
            blob.parent.mkdir(parents=True, exist_ok=True)
            if not self._receive(entry, blob, meter) and not self._receive(entry, blob, meter):
                raise HubUnreachable(f"{self.hub.host} sent other bytes of {entry.name} than it lists, twice")

    def _receive(self, entry: Entry, blob: Path, meter: Meter) -> bool:
        """Receive what is missing of a file and verify it; False, and nothing left, when it is damaged."""
        partial = Partial(_partial(blob), entry)
        with partial:
            meter.move(partial.size)
            failures = 0
            while partial.size < partial.whole:
                before = partial.size
                try:
                    self._append(entry, partial, meter)
                except HubUnreachable:
                    failures = 0 if partial.size > before else failures + 1
                    if failures >= len(PATIENCE):
                        raise
                    time.sleep(PATIENCE[failures])
            if partial.verify():
                partial.path.replace(blob)
                return True
        partial.path.unlink()
        meter.move(-partial.size)
        return False

    def _append(self, entry: Entry, partial: Partial, meter: Meter) -> None:
        """Append one answer of the hub to the partial file; a server without ranges makes it begin anew."""
        start, whole = partial.size, partial.whole
        stop = min(whole, start + WINDOW)
        with closing(self.hub.read(self.repo, self.listing.commit, entry.name, start, stop, whole)) as pieces:
            for offset, piece in pieces:
                if offset != partial.size:
                    meter.move(-partial.size)
                    partial.restart()
                    if offset:
                        raise HubUnreachable(f"{self.hub.host} sent another part of {entry.name} than was asked for")
                if partial.size + len(piece) > whole:
                    raise HubUnreachable(f"{self.hub.host} sent more of {entry.name} than it lists")
                partial.write(piece)
                meter.move(len(piece))
        if partial.size < stop:
            raise HubUnreachable(f"{self.hub.host} cut {entry.name} off at {partial.size} of {whole} bytes")

    @contextmanager
    def _alone(self, blob: str) -> Iterator[None]:
        """Hold the lock that huggingface_hub takes for a content; reports `waiting` while another process has it."""
        from filelock import Timeout
        from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]

        self.repository.locks.mkdir(parents=True, exist_ok=True)
        lock = WeakFileLock(self.repository.locks / f"{blob}.lock", timeout=1.0)
        while True:
            try:
                lock.__enter__()
                break
            except Timeout:
                self.progress("waiting")
                lock = WeakFileLock(self.repository.locks / f"{blob}.lock", timeout=1.0)
        try:
            yield
        finally:
            lock.__exit__(None, None, None)


class Partial:
    """A file on its way: what is there of it, and the hash of that."""

    def __init__(self, path: Path, entry: Entry) -> None:
        self.path, self.entry, self.whole = path, entry, entry.size or 0
        self._file = path.open("ab+", buffering=0)
        self.size = 0
        self._hash = self._fresh()
        self._take_in()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()

    def write(self, piece: bytes) -> None:
        """Append bytes."""
        self._hash.update(piece)
        view = memoryview(piece)
        while view:
            view = view[self._file.write(view) or 0 :]
        self.size += len(piece)

    def restart(self) -> None:
        """Throw away what is there."""
        self._file.truncate(0)
        self.size, self._hash = 0, self._fresh()

    def verify(self) -> bool:
        """Return whether size and hash are those of the listing, and see to it that the bytes are on the disk."""
        os.fsync(self._file.fileno())
        expected = self.entry.sha256 or self.entry.sha1
        return self.size == self.whole and (expected is None or self._hash.hexdigest() == expected)

    def _fresh(self) -> Hash:
        """Return the hash the hub uses: SHA-256 of large files, git's of those in git."""
        if self.entry.sha256 or not self.entry.sha1:
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % self.whole, usedforsecurity=False)

    def _take_in(self) -> None:
        """Go on with the bytes of an earlier attempt, unless they are too many."""
        self._file.seek(0)
        while self.size <= self.whole and (piece := self._file.read(1 << 20)):
            self._hash.update(piece)
            self.size += len(piece)
        if self.size > self.whole:
            self.restart()


@contextmanager
def _disk() -> Iterator[None]:
    """Raise what the disk refuses as errors of ours."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull("the disk of the model cache is full; what was downloaded so far is kept") from None
        raise SourceError(f"the model cache cannot be written: {error.strerror or type(error).__name__}") from None


def _partial(blob: Path) -> Path:
    return blob.with_name(f"{blob.name}.incomplete")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
