"""The host's end of one worker process: the wire on one side, pending calls on the other."""

from __future__ import annotations

import asyncio
import functools
import itertools
import signal
import socket
from typing import Any

import msgspec
import structlog

from host.errors import (
    ColdframeError,
    InstanceDied,
    InvalidRequest,
    LoadFailed,
    RequestTooLarge,
    Unavailable,
    from_body,
)
from host.function import InstanceInfo, Operation, Plan, Progress
from host.placement.handle import ExitInfo, PlacementRequest, WorkerHandle
from host.placement.pending_call import PendingCall
from host.placement.process.spawner import WorkerProcess
from host.wire import (
    Call,
    Cancel,
    Connection,
    Failed,
    FrameTooLong,
    News,
    Planned,
    Proceed,
    Progressed,
    Ready,
    Start,
    Stop,
    ToHost,
    encoder,
)

log = structlog.get_logger(__name__)
_STATUS_WAIT = 5.0
_LOG_WAIT = 0.5


class ProcessHandle(WorkerHandle):
    """A worker process and the instance in it."""

    def __init__(self, job: PlacementRequest, worker: WorkerProcess) -> None:
        loop = asyncio.get_running_loop()
        self.pid = worker.pid
        self.ended = loop.create_future()
        self._job = job
        self._worker = worker
        self._wire: Connection[ToHost] = Connection(ToHost, self._receive, self._disconnected)
        self._exchanges: dict[int, tuple[PendingCall, msgspec.msgpack.Decoder[Any]]] = {}
        self._decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {
            operation.name: msgspec.msgpack.Decoder(operation.answer) for operation in job.function.operations
        }
        self._ids = itertools.count()
        self._planned: asyncio.Future[Plan] = loop.create_future()
        self._ready: asyncio.Future[InstanceInfo] = loop.create_future()
        self._progress: Progress | None = None
        self._ending: asyncio.Task[None] | None = None
        self._closed = loop.create_future()
        self._stopping = False

    @classmethod
    async def connect(cls, job: PlacementRequest, worker: WorkerProcess, sock: socket.socket) -> ProcessHandle:
        """Return a link that speaks to `worker` over `sock`."""
        link = cls(job, worker)
        try:
            await asyncio.get_running_loop().create_connection(lambda: link._wire, sock=sock)
        except BaseException:
            worker.signal(signal.SIGKILL)
            sock.close()
            raise
        # A process that the worker started may hold the socket open after it.
        worker.status.add_done_callback(lambda _: link._lost())
        return link

    @property
    def alive(self) -> bool:
        """Whether the worker's socket is open and it was not asked to stop."""
        return self._ending is None and not self._stopping

    async def plan(self) -> Plan:
        """Have the worker plan."""
        requests = {
            operation.name: f"{operation.request.__module__}:{operation.request.__qualname__}"
            for operation in self._job.function.operations
        }
        self._wire.send(Start(self._job.instance, requests, self._job.load))
        return await asyncio.shield(self._planned)

    async def load(self, plan: Plan, progress: Progress) -> InstanceInfo:
        """Let the worker load."""
        self._progress = progress
        self._wire.send(Proceed())
        return await asyncio.shield(self._ready)

    def call(self, operation: Operation[Any, Any], request: Any, *, whole: bool = False) -> PendingCall:
        """Send a request."""
        call = next(self._ids)
        exchange = PendingCall(functools.partial(self._cancel, call))
        if not self.alive:
            exchange.fail(InstanceDied("The model's process ended while the call came in."))
            return exchange
        try:
            body = msgspec.Raw(encoder.encode(request))
            self._wire.send(Call(call, operation.name, body, whole))
        except OverflowError:
            exchange.fail(InvalidRequest("The request has an integer of more than 64 bits."))
            return exchange
        except FrameTooLong as error:
            exchange.fail(RequestTooLarge(f"The request is too large for the model's process: {error}."))
            return exchange
        self._exchanges[call] = (exchange, self._decoders[operation.name])
        return exchange

    async def stop(self, grace: float) -> None:
        """Ask, SIGTERM, wait `grace` seconds, SIGKILL the process group."""
        self._stopping = True
        self._wire.send(Stop())
        self._worker.signal(signal.SIGTERM)
        done, _ = await asyncio.wait({self._worker.status}, timeout=grace)
        if not done:
            self._worker.signal(signal.SIGKILL)
        await asyncio.shield(self.ended)

    def _receive(self, message: ToHost) -> None:
        match message:
            case News():
                self._news(message)
            case Progressed(stage=stage, done=done, total=total):
                if self._progress is not None:
                    self._progress(stage, done, total)
            case Planned(plan=plan):
                _settle(self._planned, plan)
            case Ready(facts=facts):
                _settle(self._ready, facts)
            case Failed(error=body):
                self._fail_start(from_body(body))

    def _news(self, news: News) -> None:
        for call, answer in news.answers:
            entry = self._exchanges.get(call)
            if entry is not None:
                self._answer(call, entry[0], entry[1], answer)
        for call, seconds, answers in news.whole:
            entry = self._exchanges.pop(call, None)
            if entry is not None:
                self._complete(entry[0], entry[1], seconds, answers)
        for call in news.ended:
            entry = self._exchanges.pop(call, None)
            if entry is not None:
                entry[0].end()
        for call, body in news.errors:
            entry = self._exchanges.pop(call, None)
            if entry is not None:
                entry[0].fail(from_body(body))

    def _answer(
        self, call: int, exchange: PendingCall, decoder: msgspec.msgpack.Decoder[Any], answer: msgspec.Raw
    ) -> None:
        try:
            exchange.push(decoder.decode(answer))
        except msgspec.MsgspecError as error:
            exchange.fail(_unreadable(error))
            self._cancel(call)

    def _complete(
        self, exchange: PendingCall, decoder: msgspec.msgpack.Decoder[Any], seconds: float, answers: list[msgspec.Raw]
    ) -> None:
        try:
            exchange.complete(seconds, [decoder.decode(answer) for answer in answers])
        except msgspec.MsgspecError as error:
            exchange.fail(_unreadable(error))

    def _cancel(self, call: int) -> None:
        self._exchanges.pop(call, None)
        self._wire.send(Cancel(call))

    def _fail_start(self, error: ColdframeError) -> None:
        for future in (self._planned, self._ready):
            if not future.done():
                future.set_exception(error)
                future.exception()  # somebody may not be waiting any more

    def _disconnected(self) -> None:
        _settle(self._closed, None)
        self._lost()

    def _lost(self) -> None:
        """The socket closed or the process ended: find out how, then end every call."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        done, _ = await asyncio.wait({self._worker.status}, timeout=_STATUS_WAIT)
        deaf = not done and not self._stopping
        if deaf:
            # It closed its socket and lives on: it cannot be reached any more.
            self._worker.signal(signal.SIGKILL)
        status = await self._worker.status
        await asyncio.wait({self._closed}, timeout=_LOG_WAIT)  # what it said before it ended is still read
        self._wire.close()
        await self._worker.log.drained(_LOG_WAIT)
        how = describe(status)
        tail = self._worker.log.tail()
        said = f" Its last words: {tail.splitlines()[-1]}" if tail else ""
        self._fail_start(LoadFailed(f"The model's process ended while it loaded ({how}).{said}"))
        for exchange, _ in self._exchanges.values():
            exchange.fail(_stopped() if self._stopping else _died(how, said))
        self._exchanges.clear()
        killed = status == -signal.SIGKILL and not self._stopping and not deaf
        self.ended.set_result(ExitInfo(how=how, log=tail, killed=killed))


def _unreadable(error: msgspec.MsgspecError) -> ColdframeError:
    """Log an answer of the wrong type, which is the function's fault and no other call's."""
    log.error("an answer is not of the type its operation names", exc_info=error)
    return ColdframeError("The model's answer could not be read; the host's log has the details.")


def _stopped() -> ColdframeError:
    return Unavailable("The model was unloaded while it answered: the time that calls have to end then was over.")


def _died(how: str, said: str) -> ColdframeError:
    return InstanceDied(f"The model's process ended while it answered ({how}).{said}")


def describe(status: int) -> str:
    """Return an exit status in words: the signal's name, or the number."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
