"""Keeps the deployments in step with a folder of manifests, and finds them by name, alias or `NAME@ADAPTER`.

The folder is watched. A manifest that is broken now is reported, and its last good version goes on serving.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any

import msgspec
import structlog

from host.errors import ColdframeError, LoadFailed, ManifestError, ModelNotFound
from host.function import Function
from host.lifecycle.deployment import Deployment
from host.manifest import Document, Manifest
from host.manifest import load as load_manifest

log = structlog.get_logger(__name__)
SUFFIXES = (".yaml", ".yml")
_LISTED = 20
_LOOK = 5000
"""Milliseconds between two looks at a folder of which no change is reported."""

Check = Callable[[Manifest, Document], Function]
"""Checks a manifest against what is installed and returns its function; raises `ManifestError`."""
Make = Callable[[Manifest, Function], Deployment]
Adapters = Callable[[Manifest, Function], tuple[str, ...]]
"""Returns the names of a manifest's adapters, which clients choose by `NAME@ADAPTER`."""


def no_adapters(manifest: Manifest, function: Function) -> tuple[str, ...]:
    """Return no name: what a catalog of models without adapters is given."""
    return ()


class Problem(msgspec.Struct, kw_only=True, frozen=True):
    """A manifest that is not served, or not as the file now says."""

    file: str
    message: str
    line: int | None = None
    key: str | None = None
    serving_last_good: bool = False


class Entry(msgspec.Struct, kw_only=True, frozen=True):
    """A manifest that is served, and where it came from."""

    file: Path
    manifest: Manifest
    document: Document
    function: Function
    adapters: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All that clients may send as `model`: name and aliases, alone and with `@ADAPTER` of each adapter."""
        own = (self.manifest.name, *self.manifest.aliases)
        return (*own, *(f"{name}@{adapter}" for adapter in self.adapters for name in own))


class Catalog:
    """The manifests and their deployments."""

    def __init__(
        self, folder: Path, check: Check, make: Make, only: str | None = None, adapters: Adapters = no_adapters
    ) -> None:
        self.folder = folder
        self.problems: dict[Path, Problem] = {}
        self._check = check
        self._make = make
        self._only = only
        self._adapters_of = adapters
        self._entries: dict[Path, Entry] = {}
        self._deployments: dict[str, Deployment] = {}
        self._names: dict[str, str] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._seen: Any = None

    def __iter__(self) -> Iterator[Deployment]:
        return iter(self._deployments.values())

    def __len__(self) -> int:
        return len(self._deployments)

    def find(self, name: str) -> Deployment:
        """Return the deployment that serves `name`, its own or an alias; raises `ModelNotFound` with what is served."""
        deployment = self.get(name)
        if deployment is None:
            served = sorted(self._deployments)
            shown = ", ".join(served[:_LISTED]) + (", …" if len(served) > _LISTED else "")
            near = difflib.get_close_matches(name, self._names, n=1)
            hint = self._adapters(name) or (f" Did you mean `{near[0]}`?" if near else "")
            raise ModelNotFound(
                f"The model `{name}` does not exist.{hint} Served here: {shown or 'nothing yet'}.", param="model"
            )
        return deployment

    def get(self, name: str) -> Deployment | None:
        """Return the deployment that serves `name`, or None."""
        return self._deployments.get(self._names.get(name, ""))

    def _adapters(self, name: str) -> str:
        """Return what to say of a model that is there, asked for with an adapter it has not; else nothing."""
        base, _, adapter = name.rpartition("@")
        deployment = self.get(base)
        if deployment is None:
            return ""
        known = ", ".join(self._adapters_of(deployment.manifest, deployment.function)) or "none"
        return f" `{base}` has no adapter `{adapter}`; its adapters: {known}."

    def entry(self, manifest: Manifest) -> Entry:
        """Return the entry of a manifest that is served; raises `LoadFailed` for one that was changed or removed."""
        for entry in self._entries.values():
            if entry.manifest == manifest:
                return entry
        raise LoadFailed(f"The manifest of `{manifest.name}` was changed or removed while its model was loaded.")

    def refresh(self) -> None:
        """Read the folder and make the deployments agree with it. Nothing is loaded by this."""
        entries, problems = read_folder(self.folder, self._check, dict(self._entries), self._adapters_of)
        if self._only is not None:
            entries = {file: entry for file, entry in entries.items() if self._only in entry.names}
        for file, problem in problems.items():
            if self.problems.get(file) != problem:
                log.warning("manifest refused", file=file.name, line=problem.line, reason=problem.message)
        self.problems = problems
        wanted = {entry.manifest.name: entry for entry in entries.values()}
        for name in list(self._deployments):
            entry = wanted.get(name)
            if entry is None or entry.manifest != self._deployments[name].manifest:
                self._retire(name, "removed" if entry is None else "changed")
        self._names = {}
        for name, entry in wanted.items():
            if name not in self._deployments:
                self._deployments[name] = self._make(entry.manifest, entry.function)
                log.info("manifest served", name=name, file=entry.file.name, task=entry.function.name)
            for alias in entry.names:
                self._names[alias] = name
        self._entries = entries

    def add(self, manifest: Manifest, document: Document) -> Deployment:
        """Serve one manifest that no folder holds; raises `ManifestError`."""
        function = self._check(manifest, document)
        entry = Entry(
            file=document.file,
            manifest=manifest,
            document=document,
            function=function,
            adapters=self._adapters_of(manifest, function),
        )
        self._deployments[manifest.name] = deployment = self._make(manifest, function)
        self._names.update(dict.fromkeys(entry.names, manifest.name))
        self._entries[document.file] = entry
        return deployment

    async def watch(self) -> None:
        """Refresh whenever the folder changes, until cancelled."""
        from watchfiles import awatch

        while True:
            watched = _existing(self.folder)
            try:
                # It wakes every so often without a change: what happened before it began to watch, or on a file system
                # that reports none, is seen then.
                async for _ in awatch(
                    watched, recursive=False, step=50, debounce=400, rust_timeout=_LOOK, yield_on_timeout=True
                ):
                    self._look()
                    if _existing(self.folder) != watched:
                        break
            except OSError as error:  # the folder itself went away
                log.warning("the manifests' folder cannot be watched", reason=error.strerror)
                await asyncio.sleep(1.0)

    def _look(self) -> None:
        seen = _signature(self.folder)
        if seen == self._seen and not self.problems:  # a problem may be gone without a change: a model's file came
            return
        self._seen = seen
        try:
            self.refresh()
        except Exception as error:
            log.error("the manifests could not be read", exc_info=error)

    async def close(self, reason: str) -> None:
        """Drain and stop every instance."""
        for name in list(self._deployments):
            self._retire(name, reason)
        self._names = {}
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _retire(self, name: str, reason: str) -> None:
        deployment = self._deployments.pop(name)
        log.info("manifest retired", name=name, reason=reason)
        task = asyncio.get_running_loop().create_task(deployment.close(reason))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def read_folder(
    folder: Path, check: Check, last_good: dict[Path, Entry] | None = None, adapters: Adapters = no_adapters
) -> tuple[dict[Path, Entry], dict[Path, Problem]]:
    """Read every manifest of a folder (or one file): what is served, and what is wrong with the others.

    Names and aliases are unique. A name that two files claim stays with the one that is served under it, else it goes
    to the one that comes first in order of file names. A file that is broken now keeps what it last said well.
    """
    before = last_good or {}
    read: dict[Path, Entry] = {}
    problems: dict[Path, Problem] = {}
    for file in manifest_files(folder):
        try:
            read[file] = _read(file, check, adapters)
        except Exception as error:
            if not isinstance(error, ColdframeError):  # of a plug-in's check, say: it is this manifest's problem alone
                log.error("manifest could not be checked", file=file.name, exc_info=error)
                error = ManifestError(f"could not be checked ({type(error).__name__}); the host's log says more")
            problems[file] = _problem(file, error, file in before)
            if file in before:
                read[file] = before[file]
    owners = _owners(read, before, set(problems))
    entries: dict[Path, Entry] = {}
    for file, entry in read.items():
        lost = next((name for name in entry.names if owners[name] != file), None)
        if lost is None:
            entries[file] = entry
            continue
        key = "name" if lost == entry.manifest.name else "aliases"
        where = (key,) if key in entry.document.data else ()
        taken = entry.document.error(f"the name `{lost}` is taken by {owners[lost].name}", where)
        kept = file in before and all(owners.get(name, file) == file for name in before[file].names)
        problems[file] = _problem(file, taken, kept)
        if kept:
            entries[file] = before[file]
    return entries, problems


def _owners(read: dict[Path, Entry], before: dict[Path, Entry], broken: Container[Path]) -> dict[str, Path]:
    """Return which file each name belongs to: the one that is served under it, else the first that is not broken."""
    owners: dict[str, Path] = {}
    fresh = {file: entry for file, entry in read.items() if file not in broken}
    for file, entry in fresh.items():
        served = before[file].names if file in before else ()
        owners.update({name: file for name in entry.names if name in served and name not in owners})
    for file, entry in (*fresh.items(), *read.items()):
        for name in entry.names:
            owners.setdefault(name, file)
    return owners


def _signature(folder: Path) -> list[tuple[Path, int, int, int]]:
    """Return what changes when a manifest does."""
    found = []
    for file in manifest_files(folder):
        with contextlib.suppress(OSError):
            status = file.stat()
            found.append((file, status.st_ino, status.st_mtime_ns, status.st_size))
    return found


def _existing(folder: Path) -> Path:
    """Return the folder to watch: itself, or the nearest one above that there is."""
    return next((path for path in (folder, *folder.absolute().parents) if path.is_dir()), Path("/"))


def manifest_files(folder: Path) -> list[Path]:
    """Return what is named like a manifest, in order of names; a file is its own list."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        return []
    return sorted(f for f in folder.iterdir() if f.suffix.lower() in SUFFIXES and not f.name.startswith("."))


def _read(file: Path, check: Check, adapters: Adapters) -> Entry:
    manifest, document = load_manifest(file)
    function = check(manifest, document)
    found = Entry(
        file=file,
        manifest=manifest,
        document=document,
        function=function,
        adapters=adapters(manifest, function),
    )
    if len(set(found.names)) != len(found.names):
        raise document.error("a name stands here twice", ("aliases",))
    return found


def _problem(file: Path, error: ColdframeError, serving: bool) -> Problem:
    line, key = (error.line, error.key) if isinstance(error, ManifestError) else (None, error.param)
    return Problem(file=file.name, message=error.message, line=line, key=key, serving_last_good=serving)
