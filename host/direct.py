"""One function without a server: open a manifest, ask it, close it. For tests, notebooks and scripts.

The same life cycle, budget and placements as in the host; only HTTP is missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from host.errors import InvalidRequest
from host.function import Operation, Stream
from host.lifecycle.deployment import Deployment
from host.lifecycle.status import Status
from host.manifest import Manifest, of_manifest
from host.manifest import load as load_manifest
from host.registry import Registry
from host.runtime import Runtime
from host.settings import Settings, read


class OpenFunction:
    """A manifest that can be asked; loaded by its first call, as in a host."""

    def __init__(self, runtime: Runtime, deployment: Deployment) -> None:
        self.runtime = runtime
        self._deployment = deployment

    @property
    def manifest(self) -> Manifest:
        """The manifest, with every default filled in."""
        return self._deployment.manifest

    async def load(self) -> Status:
        """Load it now instead of at the first call."""
        await self._deployment.load()
        return self.status()

    async def unload(self) -> None:
        """Evict it; the next call loads it anew."""
        await self._deployment.unload()

    def status(self) -> Status:
        """Return its state, plan, memory and counters."""
        return self._deployment.status()

    async def call(self, request: Any) -> Any:
        """Return the answer to one request Struct of an operation that does not stream."""
        operation = self.operation(request, streams=False)
        check_types(request)
        return await self.runtime.dispatch.call(self.manifest.name, operation, request)

    def stream(self, request: Any) -> Stream[Any]:
        """Return the answers to one request Struct of a streaming operation; iterate them, or `aclose` early."""
        operation = self.operation(request, streams=True)
        check_types(request)
        return self.runtime.dispatch.stream(self.manifest.name, operation, request)

    def operation(self, request: Any, *, streams: bool) -> Operation[Any, Any]:
        """Return the operation that takes this request; raises `InvalidRequest` naming what would be right."""
        operations = self._deployment.function.operations
        for operation in operations:
            if type(request) is operation.request and operation.streams == streams:
                return operation
        takes = ", ".join(f"{o.request.__name__} ({'stream' if o.streams else 'call'})" for o in operations)
        name = self._deployment.function.name
        raise InvalidRequest(f"`{name}` does not take {type(request).__name__} this way; it takes: {takes}")


def check_types(request: Any) -> None:
    """Raise `InvalidRequest` for a Struct made in code with a value of a type that its field does not take."""
    try:
        msgspec.convert(msgspec.to_builtins(request), type(request))
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$.")
        param = place.removesuffix("`") or None
        raise InvalidRequest(f"{param}: {message}" if param else message, param=param) from None


@asynccontextmanager
async def open_function(
    manifest: Path | str | Manifest,
    *,
    placement: str | None = None,
    settings: Settings | None = None,
    registry: Registry | None = None,
    base: Path | None = None,
) -> AsyncIterator[OpenFunction]:
    """Open one manifest, from a file or made in code; everything is given back at the end.

    `placement` overrides the manifest's, e.g. `inline` to debug; `base` is what relative model paths of a manifest
    made in code start from (default: the working directory). Raises `ManifestError` for what is wrong with it.
    """
    settings = settings or read(None)
    file = None if isinstance(manifest, Manifest) else Path(manifest)
    folder = file if file is not None else (base or Path.cwd())
    runtime = Runtime(msgspec.structs.replace(settings, manifests=folder), registry)
    try:
        yield OpenFunction(runtime, _deploy(runtime, manifest, placement, base))
    finally:
        await runtime.stop(grace=0)


def _deploy(runtime: Runtime, manifest: Path | str | Manifest, placement: str | None, base: Path | None) -> Deployment:
    if isinstance(manifest, Manifest):
        said, document = of_manifest(manifest, base)
    else:
        said, document = load_manifest(Path(manifest))
    if placement is not None:
        said = msgspec.structs.replace(said, placement=placement)
    return runtime.catalog.add(said, document)
