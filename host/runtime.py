"""The host without its HTTP face: plug-ins, catalog, budget and dispatch, put together and started.

The Litestar application, direct use in tests and the command line all stand on this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog

from host import machine
from host.catalog import Catalog
from host.dispatch import Dispatch
from host.errors import FunctionDisabled, InvalidRequest, LoadFailed, ManifestError, ModelFileNotFound, SourceError
from host.events import Event
from host.function import Engine, Function, ModelRequest, Progress
from host.lifecycle.budget import Budget
from host.lifecycle.deployment import Deployment
from host.manifest import Document, Manifest, options
from host.placement.handle import Placement
from host.registry import Registry
from host.settings import Settings
from host.sources.reference import kind
from host.sources.resolve import check as check_source
from host.sources.resolve import resolve

log = structlog.get_logger(__name__)
_Observer = Callable[[Event], None]


class Runtime:
    """Everything between a call and its instance. Make it, `start` it on an event loop, `stop` it."""

    def __init__(self, settings: Settings, registry: Registry | None = None, only: str | None = None) -> None:
        self.settings = settings
        self.registry = registry or Registry.discover()
        self.budget = Budget(settings.budget, machine.memory_available)
        self.catalog = Catalog(settings.manifests, self._servable, self._deployment, only)
        self.dispatch = Dispatch(self.catalog, self.observe, self.observed)
        self._around = RuntimeServices(self)
        self._warming = False
        self._observers: set[_Observer] = set()
        self._plugins_observe = self.registry.observed
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, *, watch: bool = True, warm: bool = True) -> None:
        """Serve the manifests, and warm the placements they name; nothing is loaded but what `preload` says."""
        self._warming = warm
        self.catalog.refresh()
        if watch:
            task = asyncio.get_running_loop().create_task(self.catalog.watch(), name="watch manifests")
            self._tasks.append(task)

    async def stop(self, grace: float | None = None) -> None:
        """Refuse new calls, let the others end within the grace time, then give everything back."""
        for task in self._tasks:
            task.cancel()
        failed = await self.dispatch.stop(self.settings.grace if grace is None else grace)
        if failed:
            log.warning("calls were ended by the shutdown", calls=failed)
        await self.catalog.close("shutdown")
        for placement in self.registry.placements.values():
            await placement.close()

    def check(self, manifest: Manifest, document: Document, *, files: bool = True) -> Function:
        """Return a manifest's function; raises `ManifestError` for what can be seen to be wrong before any load.

        Without `files`, a model that is not where the manifest says is no reason: it may come yet, and a call tells.
        """
        with _at(document):
            function = self.registry.function(manifest.task)
            if manifest.placement not in self.registry.placements:
                known = ", ".join(sorted(self.registry.placements))
                raise ManifestError(f"no such placement `{manifest.placement}`; known: {known}", key="placement")
            try:
                check_source(self.registry.sources, wanted_of(manifest, document.file.parent, function, self.registry))
            except SourceError as error:
                if files:
                    raise
                log.warning("model is not here yet", name=manifest.name, reason=error.message)
            engine = self.registry.engine(manifest, function)
        if manifest.options:
            _check_options(document, [engine] if engine else self._engines(function), function)
        return function

    def _servable(self, manifest: Manifest, document: Document) -> Function:
        return self.check(manifest, document, files=False)

    def observe(self, event: Event) -> None:
        """Tell plug-ins and listeners of an event."""
        self.registry.observe(event)
        for observer in tuple(self._observers):
            observer(event)

    def observed(self) -> bool:
        """Return whether anybody besides the host's own metrics is interested in events."""
        return self._plugins_observe or bool(self._observers)

    @contextlib.contextmanager
    def listening(self, observer: _Observer) -> Any:
        """Have `observer` called with every event, as long as the context lasts."""
        self._observers.add(observer)
        try:
            yield
        finally:
            self._observers.discard(observer)

    @property
    def folder(self) -> Path:
        """The folder that relative paths of manifests start from."""
        folder = self.settings.manifests
        return folder if folder.is_dir() else folder.parent

    def _engines(self, function: Function) -> list[Engine]:
        return [self.registry.engines[name] for name in function.instances if name in self.registry.engines]

    def _deployment(self, manifest: Manifest, function: Function) -> Deployment:
        deployment = Deployment(manifest, function, self._around, self.observe)
        if self._warming:
            self._warm(deployment)
        if manifest.preload:
            task = asyncio.get_running_loop().create_task(_preload(deployment), name=f"preload {manifest.name}")
            self._tasks.append(task)
            task.add_done_callback(self._tasks.remove)
        return deployment

    def _warm(self, deployment: Deployment) -> None:
        with contextlib.suppress(Exception):
            engine = self.registry.engine(deployment.manifest, deployment.function)
            if engine is not None:
                self.registry.placements[deployment.manifest.placement].warm(engine)


class RuntimeServices:
    """The `Surroundings` of every deployment of a runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.budget = runtime.budget
        self.threads = runtime.settings.threads
        self.stall = runtime.settings.stall
        self.grace = runtime.settings.stop
        self.drain = runtime.settings.drain

    async def resolve(self, manifest: Manifest, function: Function, progress: Progress) -> Path:
        """Resolve the model in a thread; a load that is given up ends a download at its next progress."""
        loop = asyncio.get_running_loop()
        given_up = threading.Event()

        def tell(stage: str, done: int = 0, total: int = 0) -> None:
            if given_up.is_set():
                raise LoadFailed("The load was given up.")  # ends a download; what it brought is kept
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(progress, stage, done, total)

        wanted = wanted_of(manifest, self.runtime.folder, function, self.runtime.registry)
        try:
            return await asyncio.to_thread(resolve, self.runtime.registry.sources, wanted, tell)
        except ModelFileNotFound as error:
            if kind(manifest.model) == "hub":
                raise
            # What lies on this machine, and where, is for its owner: clients read what is raised here.
            log.warning("model is not here", name=manifest.name, reason=error.message)
            words = f"The files of `{manifest.name}` are not where its manifest says: `coldframe check` tells more."
            raise ModelFileNotFound(words, param="model") from error
        finally:
            given_up.set()

    def engine(self, manifest: Manifest, function: Function, path: Path | None) -> Engine | None:
        """Choose the engine, by the text or by the files."""
        try:
            return self.runtime.registry.engine(manifest, function, path)
        except (ManifestError, InvalidRequest):
            if path is None:
                return None
            raise

    def options(self, manifest: Manifest, engine: Engine, function: Function) -> tuple[msgspec.Raw, msgspec.Raw]:
        """Check the options against the engine that was chosen in the end, with the lines of the file."""
        document = self.runtime.catalog.entry(manifest).document
        try:
            found = options.read(document, engine.options, function.options)
        except ManifestError as error:
            whose = f"options of {function.name} on the engine {engine.name}"
            raise LoadFailed(f"{error.key}: {error.message} ({whose})") from None
        first, second = (msgspec.Raw(msgspec.msgpack.encode(part)) for part in found)
        return first, second

    def folder(self, manifest: Manifest) -> Path:
        """Return the folder that the manifest's relative paths start from."""
        return self.runtime.folder

    def placement(self, name: str) -> Placement:
        """Return the placement of that name; the manifest was checked for it."""
        return self.runtime.registry.placements[name]

    def log(self, name: str, line: str) -> None:
        """Log what a worker printed."""
        log.info("worker", name=name, line=line)


def _check_options(document: Document, engines: list[Engine], function: Function) -> None:
    """Raise `ManifestError` for options that suit none of the engines that may run the model, as the first tells it."""
    refused: list[ManifestError] = []
    for engine in engines:
        try:
            options.read(document, engine.options, function.options)
        except ManifestError as error:
            refused.append(error)
        else:
            return
    if refused:
        raise refused[0]


async def _preload(deployment: Deployment) -> None:
    try:
        await deployment.load()
    except Exception as error:  # noqa: BLE001 - whatever it is, the first call will meet and tell it
        log.warning("preload failed", name=deployment.name, reason=str(error))


def wanted_of(manifest: Manifest, base: Path, function: Function, registry: Registry) -> ModelRequest:
    """Return what a source is asked for; an engine that cannot run it is not its matter, and told elsewhere."""
    suffixes: tuple[str, ...] = ()
    with contextlib.suppress(ManifestError, FunctionDisabled):
        engine = registry.engine(manifest, function)
        suffixes = engine.suffixes if engine else ()
    return ModelRequest(
        model=manifest.model,
        base=base,
        quantization=manifest.quantization,
        revision=manifest.revision,
        suffixes=suffixes,
    )


@contextlib.contextmanager
def _at(document: Document) -> Any:
    """Give errors about a key the line it stands on."""
    try:
        yield
    except ManifestError as error:
        if error.file is not None:
            raise
        raise document.error(error.message, (error.key,) if error.key else ()) from None
