"""One attempt to start an instance: resolve the files, open a worker, plan, reserve memory, load.

A failed or cancelled attempt stops its worker and releases its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from host.errors import LoadFailed, OutOfMemory
from host.function import Engine, Function, InstanceInfo, Load, Plan, Progress
from host.lifecycle.budget import Budget, Holder
from host.manifest import Manifest
from host.placement.handle import Placement, PlacementRequest, WorkerHandle

T = TypeVar("T")

WAITING_FOR_MEMORY = "waiting for memory"
RETRYING = "retrying with less memory"
"""Stages that say more than how far it is."""
ABANDON_GRACE = 2.0
"""Seconds a worker has to end after SIGTERM when its load is given up."""


class HostServices(Protocol):
    """What a deployment needs of the host: everything that touches the world outside it."""

    budget: Budget
    threads: int
    stall: float
    """Seconds without progress after which a load is given up."""
    grace: float
    """Seconds a worker has to end after SIGTERM."""
    drain: float
    """Seconds calls in flight have to end when their instance must go."""

    async def resolve(self, manifest: Manifest, function: Function, progress: Progress) -> Path:
        """Return the model's file or folder, fetching it first when need be."""

    def engine(self, manifest: Manifest, function: Function, path: Path | None) -> Engine | None:
        """Return the engine that runs the manifest, None when the files decide and are not resolved yet."""

    def options(self, manifest: Manifest, engine: Engine, function: Function) -> tuple[msgspec.Raw, msgspec.Raw]:
        """Return the manifest's options for the engine and for the function, checked by their types, as msgpack."""

    def folder(self, manifest: Manifest) -> Path:
        """Return the folder that the manifest's relative paths start from."""

    def placement(self, name: str) -> Placement:
        """Return the placement of that name."""

    def log(self, name: str, line: str) -> None:
        """Take a line that an instance printed."""


class Running(msgspec.Struct, kw_only=True, frozen=True):
    """An instance that is up."""

    link: WorkerHandle
    plan: Plan
    facts: InstanceInfo
    engine: Engine
    down: Any
    """A future that is done when the instance is gone and its memory released."""


class Startup:
    """One attempt. `progress` is called with stages; `loading` is called when the plan was admitted."""

    def __init__(
        self,
        holder: Holder,
        manifest: Manifest,
        function: Function,
        around: HostServices,
        *,
        progress: Progress,
        loading: Callable[[Plan], None],
    ) -> None:
        self._holder = holder
        self._manifest = manifest
        self._function = function
        self._around = around
        self._report = progress
        self._loading = loading
        self._moved = asyncio.Event()

    async def run(self) -> Running:
        """Bring the instance up; a load that ran out of memory is tried once more, with less."""
        self._report("resolving")
        path = await self._around.resolve(self._manifest, self._function, self._progress)
        engine = self._around.engine(self._manifest, self._function, path)
        assert engine is not None
        try:
            return await self._attempt(path, engine, 0)
        except OutOfMemory:
            self._report(RETRYING)
            return await self._attempt(path, engine, 1)

    async def _attempt(self, path: Path, engine: Engine, attempt: int) -> Running:
        options, function_options = self._around.options(self._manifest, engine, self._function)
        load = Load(
            manifest=self._manifest,
            path=str(path),
            engine=engine.name,
            options=options,
            function_options=function_options,
            threads=self._around.threads,
            memory=self._around.budget.totals,
            held={pool: self._around.budget.held(pool) for pool in self._around.budget.totals},
            base=str(self._around.folder(self._manifest)),
            attempt=attempt,
        )
        self._report("starting")
        placement = self._around.placement(self._manifest.placement)
        opening = asyncio.ensure_future(
            placement.open(
                PlacementRequest(function=self._function, engine=engine, load=load),
                lambda line: self._around.log(self._manifest.name, line),
            )
        )
        try:
            return await self._come_up(await self._watched(opening), engine)
        except BaseException:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await _finish(self._abandon(opening.result()))
            raise

    async def _come_up(self, link: WorkerHandle, engine: Engine) -> Running:
        self._report("planning")
        plan = await self._watched(link.plan())
        self._report(WAITING_FOR_MEMORY)
        await self._around.budget.admit(self._holder, plan)
        self._loading(plan)
        try:
            facts = await self._watched(link.load(plan, self._progress))
        except LoadFailed as error:
            if link.ended.done() and link.ended.result().killed:
                # The kernel kills a process that takes the last page; the host sends no SIGKILL here.
                raise OutOfMemory(f"The model's process was killed while it loaded: {error.message}") from error
            raise
        down: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return Running(link=link, plan=plan, facts=facts, engine=engine, down=down)

    async def _abandon(self, link: WorkerHandle) -> None:
        await link.stop(ABANDON_GRACE)
        self._around.budget.release(self._holder)

    def _progress(self, stage: str, done: int = 0, total: int = 0) -> None:
        self._moved.set()
        self._report(stage, done, total)

    async def _watched(self, work: Awaitable[T]) -> T:
        """Return what `work` gives; raises `LoadFailed` when nothing has moved for the stall time."""
        task = asyncio.ensure_future(work)
        # The waiter may be cancelled as the work fails: the error is then retrieved here.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            while not (await asyncio.wait({task}, timeout=self._around.stall))[0]:
                if not self._moved.is_set():
                    raise LoadFailed(f"The load made no progress for {self._around.stall:g} seconds.")
                self._moved.clear()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Wait for the end of `work`, also when cancelled meanwhile: what comes next counts on its being over."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
