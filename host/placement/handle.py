"""Where instances live: a `Placement` opens workers, a `WorkerHandle` is one worker with one instance.

The life cycle knows only these two; what is behind them (a process, this process, another machine) is theirs to know.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from host.function import Engine, Function, InstanceInfo, Load, Operation, Plan, Progress
from host.placement.pending_call import PendingCall


class ExitInfo(msgspec.Struct, kw_only=True, frozen=True):
    """How a place ended: `how` in words (`SIGSEGV`, `exit status 1`), and the tail of its log."""

    how: str
    log: str = ""
    killed: bool = False
    """Whether it was SIGKILL and not ours: what the kernel does when memory is short."""


class PlacementRequest(msgspec.Struct, kw_only=True, frozen=True):
    """What to place."""

    function: Function
    engine: Engine
    load: Load

    @property
    def instance(self) -> str:
        """The `module:Class` of the instance."""
        return self.function.instances[self.engine.name]


class WorkerHandle(ABC):
    """One place and the instance in it. `plan`, `load`, then calls, then `stop`; all on the host's event loop."""

    pid: int | None = None
    ended: asyncio.Future[ExitInfo]
    """Done when the place is gone and its memory free, on purpose or not."""

    @property
    def alive(self) -> bool:
        """Whether calls can be begun; false from the first sign of an end, before `ended` tells how it was."""
        return not self.ended.done()

    @abstractmethod
    async def plan(self) -> Plan:
        """Have the instance plan itself. Raises what it raises, or `LoadFailed` when the place ended meanwhile."""

    @abstractmethod
    async def load(self, plan: Plan, progress: Progress) -> InstanceInfo:
        """Have it load its weights. Raises as `plan` does."""

    @abstractmethod
    def call(self, operation: Operation[Any, Any], request: Any, *, whole: bool = False) -> PendingCall:
        """Begin a call. A place that ends fails its calls with `InstanceDied`.

        As a `whole`, the answers of a streaming operation come as one list, when the last of them is made.
        """

    @abstractmethod
    async def stop(self, grace: float) -> None:
        """End the place: gently, then after `grace` seconds by force. Returns when `ended` is done."""


class Placement(ABC):
    """A kind of place; registered by `coldframe_placements`."""

    name: ClassVar[str]

    def warm(self, engine: Engine) -> None:  # noqa: B027 - nothing to prepare is common
        """Prepare, in the background, for instances of this engine. Called often; does nothing the second time."""

    @abstractmethod
    async def open(self, job: PlacementRequest, log: Callable[[str], None]) -> WorkerHandle:
        """Make a place for the job, with nothing loaded; lines the instance prints go to `log`."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Give back what `warm` took; no place is open any more."""
