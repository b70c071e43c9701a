"""Reads manifests for commands: checks them against the installed plug-ins, without serving anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from host.catalog import Entry, Problem, read_folder
from host.cli.defaults import settings, with_manifests
from host.errors import ColdframeError, ManifestError
from host.function import Engine, Function, ModelRequest
from host.manifest import Document, Manifest, options
from host.registry import Registry
from host.runtime import Runtime
from host.sources.resolve import claimant


class ManifestSet:
    """The manifests of one folder, and the plug-ins they are checked against."""

    def __init__(self, manifests: Path | None = None, registry: Registry | None = None) -> None:
        self.runtime = Runtime(with_manifests(settings(), manifests), registry)
        self.registry = self.runtime.registry
        self.folder = self.runtime.settings.manifests

    def read(self) -> tuple[list[Entry], list[Problem]]:
        """Return what can be served, and what is wrong with the others."""
        entries, problems = read_folder(self.folder, self.runtime.check, adapters=self.registry.adapters)
        return list(entries.values()), list(problems.values())

    def find(self, name: str) -> Entry:
        """Return the manifest of that name or alias; raises `ManifestError` with what there is instead."""
        entries, problems = self.read()
        for entry in entries:
            if name == entry.manifest.name or name in entry.manifest.aliases:
                return entry
        names = ", ".join(sorted(entry.manifest.name for entry in entries)) or "none that can be used"
        broken = f"; not usable: {'; '.join(map(located, problems))}" if problems else ""
        raise ManifestError(f"no manifest in {self.folder} is named `{name}`; there are: {names}{broken}")

    def check(self, manifest: Manifest, document: Document) -> tuple[Function, Engine | None]:
        """Return the manifest's function, and the engine that will run it (None: the files decide, and are not here).

        Raises `ManifestError` with the line, whatever kind of error it was.
        """
        try:
            function = self.runtime.check(manifest, document)
            return function, self._engine(manifest, function, document.file.parent)
        except ColdframeError as error:
            if isinstance(error, ManifestError) and error.file is not None:
                raise
            raise document.error(error.message, (error.param,) if error.param in document.data else ()) from None

    def _engine(self, manifest: Manifest, function: Function, base: Path) -> Engine | None:
        engine = self.registry.engine(manifest, function)
        if engine is not None:
            return engine
        source, wanted = claimant(self.registry.sources, self.wanted(manifest, function, base))
        if source.name == "hub":
            return None
        return self.registry.engine(manifest, function, source.resolve(wanted, lambda stage, done=0, total=0: None))

    def wanted(self, manifest: Manifest, function: Function, base: Path) -> ModelRequest:
        """Return what a source is asked for."""
        return self.registry.request(manifest, base, function)


def resolved(manifest: Manifest, document: Document, function: Function, engine: Engine | None) -> dict[str, Any]:
    """Return a manifest as plain data with every default filled in, the engine's and the function's options too."""
    data: dict[str, Any] = msgspec.to_builtins(manifest)
    if engine is not None:
        data["engine"] = engine.name
        parts = options.read(document, engine.options, function.options)
        data["options"] = {key: value for part in parts for key, value in msgspec.to_builtins(part).items()}
    return data


def located(problem: Problem) -> str:
    """Return a problem as `file:line: key: message`."""
    place = f"{problem.file}:{problem.line}" if problem.line else problem.file
    return ": ".join(part for part in (place, problem.key, problem.message) if part)
