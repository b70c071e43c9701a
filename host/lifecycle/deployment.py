"""The life cycle of one manifest's instance, as a state machine whose states are those of `host.state.State`.

Calls come in through `acquire` and go out through `release`. One task, the owner, brings an instance up when a call
waits, and takes it down when it is idle, when its memory is needed, or on request.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

import structlog

from host.errors import (
    ColdframeError,
    InvalidRequest,
    LoadFailed,
    ManifestError,
    QueueTimeout,
    Unavailable,
    from_body,
)
from host.events import Event
from host.function import Function, Plan
from host.lifecycle.cooldown import Cooldown
from host.lifecycle.instance_startup import RETRYING, WAITING_FOR_MEMORY, HostServices, Running, Startup
from host.lifecycle.queue import Queue
from host.lifecycle.record import Record
from host.lifecycle.status import Status
from host.manifest import Manifest
from host.placement.handle import WorkerHandle
from host.state import State

log = structlog.get_logger(__name__)
_ANY = 1 << 60


class Superseded(Exception):
    """The manifest was changed or removed while a call waited here."""


class _Patience:
    """Fails a ticket with an error once its holder has waited too long."""

    def __init__(
        self,
        ticket: asyncio.Future[None],
        longest: float,
        waited: Callable[[float], float],
        tired: Callable[[], ColdframeError],
    ) -> None:
        self._ticket = ticket
        self._longest = longest
        self._waited = waited
        self._tired = tired
        self._joined = time.monotonic()
        self._timer = ticket.get_loop().call_later(longest, self._look)

    def stop(self) -> None:
        """Wait no more."""
        self._timer.cancel()

    def _look(self) -> None:
        left = self._longest - self._waited(self._joined)
        if self._ticket.done():
            return
        if left > 0:
            self._timer = self._ticket.get_loop().call_later(left, self._look)
        else:
            self._ticket.set_exception(self._tired())


class Deployment:
    """A manifest and, now and then, its instance."""

    def __init__(
        self, manifest: Manifest, function: Function, around: HostServices, observe: Callable[[Event], None]
    ) -> None:
        self.name = manifest.name
        self.manifest = manifest
        self.function = function
        self.last_used = time.monotonic()
        self.in_flight = 0
        self._around = around
        self._record = Record(manifest.name, function.name, observe)
        self._queue = Queue(manifest.queue.size, manifest.name)
        self._cooldown = Cooldown(time.monotonic)
        self._changed = asyncio.Event()
        self._running: Running | None = None
        self._ready_at = 0.0
        self._asked = Queue(_ANY, manifest.name)
        self._closing: str | None = None
        self._paused = False
        self._timed = False
        """Whether the owner looks at the idle time by itself, so that no call has to wake it."""
        self._memory_at = math.inf
        self._owner = asyncio.get_running_loop().create_task(self._own(), name=f"deployment {manifest.name}")

    # -- what others ask ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Where it is in its life."""
        return self._record.state

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot."""
        return len(self._queue)

    @property
    def evictable(self) -> bool:
        """Whether it could go now to make room: loaded, idle, nobody waiting, not pinned by `idle: never`."""
        return self._free and not math.isinf(self.manifest.idle)

    async def acquire(self) -> WorkerHandle:
        """Wait for a slot of a loaded instance and take it; `release` gives it back.

        Raises `QueueFull`, `QueueTimeout`, `LoadFailed` and what else a load can end with, `Superseded`. Cancel it to
        stop waiting: a load that nobody else waits for is given up.
        """
        self._refuse_now()
        running = self._running
        if running is not None and self._takes_calls and not self._queue:
            self.in_flight += 1
            return running.link
        ticket = self._queue.join(self._room)
        if not self._open or self._room > 0:  # else whoever ends its call hands over the slot
            self._changed.set()
        try:
            await self._wait(ticket)
        except BaseException:
            if ticket.done() and not ticket.cancelled() and ticket.exception() is None:
                self.release()  # served and given up in the same moment
            self._queue.leave(ticket)
            self._changed.set()
            raise
        if self._running is None or not self._running.link.alive:  # died between being served and getting here
            self.release()
            return await self.acquire()
        return self._running.link

    def release(self) -> None:
        """Give a slot back: to the first call that waits for one, without a turn of the owner in between."""
        self.in_flight -= 1
        self.last_used = time.monotonic()
        if self._queue:
            self._grant()
        if (not self.in_flight and not self._timed) or not self._open:
            self._changed.set()
        self._around.budget.poke()

    async def load(self) -> None:
        """Load now, without a call; returns when it is ready. A cool-down is skipped: somebody means it."""
        self._refuse_closing()
        if self._open:
            return
        self._cooldown.skip()
        ticket = self._asked.join(0)
        self._changed.set()
        try:
            await self._wait(ticket)
        finally:
            self._asked.leave(ticket)
            self._changed.set()

    async def unload(self, reason: str = "unload") -> bool:
        """Drain and go cold, whatever the idle time says; returns whether anything was loaded."""
        running = self._running
        if running is None:
            loading = bool(self._asked)
            self._asked.refuse(Unavailable("The model was unloaded while it was loading."))
            self._changed.set()  # a load that no call waits for is given up
            return loading
        self._go(reason)
        await asyncio.shield(running.down)
        return True

    async def evict(self, reason: str) -> bool:
        """Go to make room, unless work came in meanwhile; returns, when the memory is free, whether it went."""
        running = self._running
        if running is None or not self.evictable:
            return False
        self._go(reason)
        await asyncio.shield(running.down)
        return True

    def pause(self, paused: bool) -> None:
        """Start no further call while `paused`: another model has waited long for this one's memory."""
        self._paused = paused and not math.isinf(self.manifest.idle)
        self._changed.set()

    async def close(self, reason: str) -> None:
        """Drain, go cold for good. Calls that wait are sent at once to look their model up again."""
        if self._closing is None:
            self._closing = reason
        if self._running is not None:
            self._go(reason)
        self._queue.refuse(Superseded())
        self._asked.refuse(Superseded())
        self._changed.set()
        await asyncio.shield(self._owner)

    def stage(self) -> str:
        """Return in a few words what a waiting call waits for."""
        if self._record.progress is not None:
            return str(self._record.progress)
        return f"queued behind {self.waiting}" if self.waiting else str(self.state)

    def status(self) -> Status:
        """Return what is true now."""
        record, facts = self._record, self._running.facts if self._running else None
        engine = self._running.engine if self._running else self._around.engine(self.manifest, self.function, None)
        return Status(
            name=self.name,
            task=self.function.name,
            state=record.state,
            model=self.manifest.model,
            engine=engine.name if engine else self.manifest.engine,
            placement=self.manifest.placement,
            aliases=self.manifest.aliases,
            since=record.since,
            pid=self._running.link.pid if self._running else None,
            capacity=facts.capacity if facts else None,
            slots=facts.slots if facts else None,
            context=self.context,
            detail=facts.detail if facts else {},
            bytes=record.bytes,
            plan=record.plan,
            progress=record.progress,
            in_flight=self.in_flight,
            waiting=self.waiting,
            idle=None if math.isinf(self.manifest.idle) else self.manifest.idle,
            idle_left=self._idle_left(),
            cooldown_left=round(self._cooldown.left(), 3),
            loads=record.loads,
            evictions=record.evictions,
            last_error=record.last_error,
        )

    @property
    def context(self) -> int | None:
        """Tokens per slot: as loaded, else as last planned, else as the manifest says; None when not known yet."""
        if self._running is not None and self._running.facts.context is not None:
            return self._running.facts.context
        if self._record.plan is not None and self._record.plan.context is not None:
            return self._record.plan.context
        return self.manifest.context if isinstance(self.manifest.context, int) else None

    # -- waiting -----------------------------------------------------------------------------------------------------

    @property
    def _room(self) -> int:
        """How many more calls the instance takes now, or will when it is up."""
        if self._running is not None:
            return self._running.facts.capacity - self.in_flight
        return self.manifest.slots if isinstance(self.manifest.slots, int) else 1

    @property
    def _open(self) -> bool:
        """Whether calls may start: ready, and the worker lives."""
        running = self._running
        return self.state is State.READY and running is not None and running.link.alive

    @property
    def _takes_calls(self) -> bool:
        return self._open and not self._paused and self._room > 0

    @property
    def _free(self) -> bool:
        return self._open and not self.in_flight and (self._paused or not self._queue)

    @property
    def _wanted(self) -> bool:
        return bool(self._queue) or bool(self._asked)

    def _refuse_closing(self) -> None:
        if self._closing is not None:
            raise Superseded

    def _refuse_now(self) -> None:
        self._refuse_closing()
        left = self._cooldown.left()
        if self._record.error is not None and left > 0:
            error = from_body(self._record.error.body())
            error.retry_after = left
            raise error

    async def _wait(self, ticket: asyncio.Future[None]) -> None:
        """Wait to be served: one future and, where the queue has a longest wait, one timer."""
        longest = self.manifest.queue.wait
        timer = None if math.isinf(longest) else _Patience(ticket, longest, self._waited, self._tired)
        try:
            await ticket
        finally:
            if timer is not None:
                timer.stop()

    def _waited(self, joined: float) -> float:
        """Return for how long a call waits that counts: a load has a bound of its own."""
        since = self._ready_at if self._running is not None else self._memory_at
        return 0.0 if math.isinf(since) else time.monotonic() - max(joined, since)

    def _tired(self) -> QueueTimeout:
        longest = self.manifest.queue.wait
        message = f"The request waited {longest:g} seconds for `{self.name}` ({self.stage()})."
        return QueueTimeout(message, retry_after=1.0)

    # -- the owner ---------------------------------------------------------------------------------------------------

    async def _own(self) -> None:
        while self._closing is None:
            await self._until_wanted()
            if self._closing is not None or not await self._come_up():
                continue
            reason = await self._serve()
            await self._go_down(reason)

    async def _until_wanted(self) -> None:
        while self._closing is None and not self._wanted:
            self._changed.clear()
            await self._changed.wait()

    async def _come_up(self) -> bool:
        """Bring an instance up, or fail all waiting calls; a load without waiting calls is cancelled."""
        began = time.monotonic()
        self._record.enter(State.PLANNING, "called")
        startup = asyncio.get_running_loop().create_task(
            Startup(
                self, self.manifest, self.function, self._around, progress=self._progressed, loading=self._admitted
            ).run()
        )
        startup.add_done_callback(lambda _: self._changed.set())
        given_up = False
        while not startup.done():
            self._changed.clear()
            if not given_up and (self._closing is not None or not self._wanted):
                given_up = startup.cancel()  # once: a second time would interrupt the cleaning up
            await self._changed.wait()
        self._memory_at = math.inf
        if startup.cancelled():
            self._record.enter(State.COLD, "nobody waits any more")
            return False
        error = startup.exception()
        if error is not None:
            self._failed(error)
            return False
        self._came_up(startup.result(), time.monotonic() - began)
        return True

    def _came_up(self, running: Running, seconds: float) -> None:
        self._running = running
        self._cooldown.succeed()
        self.last_used = self._ready_at = time.monotonic()
        running.link.ended.add_done_callback(lambda _: self._changed.set())
        self._record.loaded(running.plan, seconds)
        while self._asked.serve():
            pass
        self._grant(paused=True)
        self._around.budget.poke()

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, ColdframeError):
            log.error("load failed unexpectedly", name=self.name, exc_info=error)
            error = LoadFailed(f"The model could not be loaded ({type(error).__name__}); the host's log says more.")
        elif isinstance(error, InvalidRequest | ManifestError):  # what is wrong is the model, not the client's request
            error = LoadFailed(error.message)
        error.retry_after = self._cooldown.fail()
        self._record.failed(error)
        self._queue.refuse(error)
        self._asked.refuse(error)

    async def _serve(self) -> str:
        """Let calls start until there is a reason to go down; returns it."""
        while True:
            self._changed.clear()
            self._grant()
            reason = self._reason()
            if reason is not None:
                return reason
            idle_left = self._idle_left()
            left = min(math.inf if idle_left is None else idle_left, self._drain_left())
            self._timed = not math.isinf(left) or math.isinf(self.manifest.idle)
            try:
                await asyncio.wait_for(self._changed.wait(), None if math.isinf(left) else max(0.0, left))
            except TimeoutError:
                continue
            finally:
                self._timed = False

    def _grant(self, *, paused: bool = False) -> None:
        """Let calls start. Those for whom it came up start while it is `paused` too: were it evicted for another one
        before it answered any, and that one for it in turn, two could load for ever.
        """
        while (self._takes_calls or (paused and self._open and self._room > 0)) and self._queue.serve():
            self.in_flight += 1

    def _reason(self) -> str | None:
        assert self._running is not None
        if self._running.link.ended.done():
            return "died"
        if self._closing is not None:  # closed just before it was up
            self._go(self._closing)
        if self.state is State.DRAINING:
            return self._record.reason if not self.in_flight or self._drain_left() <= 0 else None
        idle = self._free and not self._queue
        return "idle" if idle and time.monotonic() - self.last_used >= self.manifest.idle else None

    def _idle_left(self) -> float | None:
        if not self._free or self._queue or math.isinf(self.manifest.idle):
            return None
        return max(0.0, self.manifest.idle - (time.monotonic() - self.last_used))

    def _go(self, reason: str) -> None:
        """Start no further call, and end the instance when those in flight have ended or the drain time is over."""
        if self.state is State.READY:
            self._record.enter(State.DRAINING, reason)
        self._changed.set()

    def _drain_left(self) -> float:
        """Return the seconds that calls in flight have to end; infinite while it does not drain."""
        if self.state is not State.DRAINING:
            return math.inf
        return self._record.entered + self._around.drain - time.monotonic()

    async def _go_down(self, reason: str) -> None:
        running = self._running
        assert running is not None
        if reason == "died":
            self._record.died(running.link.ended.result())
        else:
            self._go(reason)
        try:
            await running.link.stop(self._around.grace)
        except Exception as error:  # the deployment must live on, whatever its place thinks of ending
            log.error("instance could not be stopped", name=self.name, exc_info=error)
        self._running = None
        self._around.budget.release(self)
        if reason != "died":
            self._record.evicted(reason)
        self._record.enter(State.COLD, reason)
        running.down.set_result(None)

    def _progressed(self, stage: str, done: int = 0, total: int = 0) -> None:
        self._memory_at = time.monotonic() if stage == WAITING_FOR_MEMORY else math.inf
        if stage == RETRYING and self.state is State.LOADING:  # or it ran out of memory while it planned
            self._record.enter(State.PLANNING, stage)
        self._record.progressed(stage, done, total)

    def _admitted(self, plan: Plan) -> None:
        self._memory_at = math.inf
        self._record.admitted(plan)
