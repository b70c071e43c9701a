"""Instances in processes of their own: forked from a forkserver per engine, spoken to over a socket pair."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from host.function import Engine
from host.placement.handle import Placement, PlacementRequest, WorkerHandle
from host.placement.process.handle import ProcessHandle
from host.placement.process.spawner import Spawner


class ProcessPlacement(Placement):
    """Places each instance in a fresh worker process. One spawner per engine, so that none carries another's memory."""

    name = "process"

    def __init__(self) -> None:
        self._spawners: dict[str, Spawner] = {}

    def warm(self, engine: Engine) -> None:
        """Start the engine's forkserver, unless it is there."""
        self._spawner(engine).start()

    async def open(self, job: PlacementRequest, log: Callable[[str], None]) -> WorkerHandle:
        """Fork a worker for the job."""
        ours, theirs = socket.socketpair()
        spawner = self._spawner(job.engine)
        try:
            worker = await spawner.fork(theirs, log)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return await ProcessHandle.connect(job, worker, ours)

    async def close(self) -> None:
        """End every forkserver."""
        spawners, self._spawners = list(self._spawners.values()), {}
        await asyncio.gather(*(spawner.close() for spawner in spawners))

    def _spawner(self, engine: Engine) -> Spawner:
        if engine.name not in self._spawners:
            self._spawners[engine.name] = Spawner(engine.name, engine.preload)
        return self._spawners[engine.name]


__all__ = ("ProcessPlacement",)
