"""Instances in this very process: for tests and debuggers. Calls take the same path, without a wire.

Memory is given back as far as Python and the engine do; only a process gives back every byte.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable
from typing import Any

from host.errors import ColdframeError, InstanceDied, Unavailable
from host.function import Instance, InstanceInfo, Operation, Plan, Progress
from host.placement.handle import ExitInfo, Placement, PlacementRequest, WorkerHandle
from host.placement.pending_call import PendingCall
from host.worker.calls import Calls
from host.worker.main import find


class InlinePlacement(Placement):
    """Places instances in the host's own process."""

    name = "inline"

    async def open(self, job: PlacementRequest, log: Callable[[str], None]) -> WorkerHandle:
        """Return a link to nothing yet."""
        return InlineHandle(job)


class InlineHandle(WorkerHandle):
    """An instance in this process."""

    def __init__(self, job: PlacementRequest) -> None:
        self._job = job
        self._kind: type[Instance] = find(job.instance)
        self._instance: Instance | None = None
        self._calls: Calls | None = None
        self._exchanges: dict[int, PendingCall] = {}
        self._ids = itertools.count()
        self.ended = asyncio.get_running_loop().create_future()

    async def plan(self) -> Plan:
        """Plan in a thread."""
        return await asyncio.to_thread(self._kind.plan, self._job.load)

    async def load(self, plan: Plan, progress: Progress) -> InstanceInfo:
        """Load in a thread; a load that is cancelled runs to its end there and is thrown away."""
        loop = asyncio.get_running_loop()

        def report(stage: str, done: int = 0, total: int = 0) -> None:
            loop.call_soon_threadsafe(functools.partial(progress, stage, done, total))

        self._instance = await asyncio.to_thread(self._kind.load, self._job.load, plan, report)
        self._calls = Calls(self._instance, self)
        return self._instance.info()

    def call(self, operation: Operation[Any, Any], request: Any, *, whole: bool = False) -> PendingCall:
        """Begin a call; the request is handed over as it is."""
        call = next(self._ids)
        if self._calls is None or self.ended.done():
            exchange = PendingCall(lambda: None)
            exchange.fail(InstanceDied("The model was unloaded while the call came in."))
            return exchange
        exchange = PendingCall(functools.partial(self._cancel, call))
        self._exchanges[call] = exchange
        self._calls.start(call, request, whole=whole)
        return exchange

    async def stop(self, grace: float) -> None:
        """Give up what is being answered and let go of the instance."""
        if self._calls is not None:
            await self._calls.close()
        if self._instance is not None:
            await asyncio.to_thread(self._instance.close)
        self._instance = self._calls = None
        for exchange in list(self._exchanges.values()):
            exchange.fail(Unavailable("The model was unloaded while it answered."))
        self._exchanges.clear()
        if not self.ended.done():
            self.ended.set_result(ExitInfo(how="stopped"))

    def answer(self, call: int, answer: Any) -> None:
        """Pass an answer to its call."""
        if call in self._exchanges:
            self._exchanges[call].push(answer)

    def whole(self, call: int, seconds: float, answers: list[Any]) -> None:
        """Pass all answers to whoever asked."""
        exchange = self._exchanges.pop(call, None)
        if exchange is not None:
            exchange.complete(seconds, answers)

    def end(self, call: int) -> None:
        """Tell the asker that this was all."""
        if call in self._exchanges:
            self._exchanges.pop(call).end()

    def flush(self) -> None:
        """Do nothing: what is reported is passed on at once."""

    def fail(self, call: int, error: ColdframeError) -> None:
        """Tell the asker what went wrong."""
        if call in self._exchanges:
            self._exchanges.pop(call).fail(error)

    def _cancel(self, call: int) -> None:
        self._exchanges.pop(call, None)
        if self._calls is not None:
            self._calls.cancel(call)
