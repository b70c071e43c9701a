"""The host's end of one forkserver: starts it, requests workers, and receives how each of them ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import structlog

from host.errors import LoadFailed
from host.placement.process.log import LogPipe
from host.worker.forkserver import ENDED, FORK, FORKED, REFUSED, REPLY

log = structlog.get_logger(__name__)
_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_LOST_WAIT = 2.0


class WorkerProcess:
    """One forked worker: its pid, its log, and a future of its exit status (negative: the signal)."""

    def __init__(self, pid: int, log: LogPipe) -> None:
        self.pid = pid
        self.log = log
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker and whatever it started."""
        if not self.status.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


class Spawner(asyncio.Protocol):
    """One forkserver of one engine; started again when it died."""

    def __init__(self, engine: str, preload: tuple[str, ...]) -> None:
        self.engine = engine
        self.preload = preload
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._transport: asyncio.BaseTransport | None = None
        self._buffer = b""
        self._asked: list[tuple[asyncio.Future[WorkerProcess], LogPipe]] = []
        self._workers: dict[int, WorkerProcess] = {}
        self._turn = asyncio.Lock()
        self._log: LogPipe | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to start the forkserver, unless it runs; it imports the engine in its own time."""
        if self._process is None and (self._pending is None or self._pending.done()):
            self._pending = asyncio.get_running_loop().create_task(self._start())

    async def fork(self, sock: socket.socket, pass_on: Callable[[str], None]) -> WorkerProcess:
        """Fork one worker that serves `sock`. Waits for the forkserver's imports; raises `LoadFailed`."""
        async with self._turn:
            try:
                return await self._fork(sock, pass_on)
            except _ForkserverGoneError:  # killed between two workers: a new one is started, once
                pass
            try:
                return await self._fork(sock, pass_on)
            except _ForkserverGoneError as error:
                raise LoadFailed(str(error)) from None

    async def _fork(self, sock: socket.socket, pass_on: Callable[[str], None]) -> WorkerProcess:
        self.start()
        if self._pending is not None:
            await asyncio.shield(self._pending)
        pipe, write = await LogPipe.open(pass_on)
        try:
            return await self._ask(sock, write, pipe)
        finally:
            os.close(write)

    async def close(self) -> None:
        """End the forkserver and with it every worker it still has."""
        if self._pending is not None:
            await asyncio.gather(self._pending, return_exceptions=True)
        if self._transport is not None:
            self._transport.close()
        if self._process is not None:
            process, self._process = self._process, None
            await asyncio.to_thread(_end, process)

    async def _start(self) -> None:
        self._log, write = await LogPipe.open(lambda line: log.info("forkserver", engine=self.engine, line=line))
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        socket_, host = str(theirs.fileno()), str(os.getpid())
        try:
            self._process = subprocess.Popen(  # noqa: S603, ASYNC220 - our own module; starting it takes a millisecond
                [sys.executable, "-P", "-m", "host.worker.forkserver", socket_, host, *self.preload],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                env=_environment(),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(write)
        self._buffer = b""
        self._lost = asyncio.get_running_loop().create_future()
        # The transport reads from a duplicate: asyncio does not let us send descriptors through a socket it owns.
        self._control = ours
        self._transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, sock=ours.dup())

    async def _ask(self, sock: socket.socket, write: int, pipe: LogPipe) -> WorkerProcess:
        reply: asyncio.Future[WorkerProcess] = asyncio.get_running_loop().create_future()
        try:
            if self._control is None:  # ended as soon as it was started
                raise BrokenPipeError
            socket.send_fds(self._control, [FORK], [sock.fileno(), write])
        except OSError:
            await asyncio.wait({self._lost}, timeout=_LOST_WAIT)
            raise _ForkserverGoneError(f"The forkserver of engine {self.engine} is gone.") from None
        self._asked.append((reply, pipe))
        try:
            return await asyncio.shield(reply)
        except asyncio.CancelledError:
            # The worker will come all the same: end it when it does.
            reply.add_done_callback(_unwanted)
            raise

    def data_received(self, data: bytes) -> None:
        """Handle the forkserver's messages about its workers."""
        self._buffer += data
        while len(self._buffer) >= REPLY.size:
            kind, pid, status = REPLY.unpack_from(self._buffer)
            self._buffer = self._buffer[REPLY.size :]
            if kind == FORKED:
                reply, pipe = self._asked.pop(0)
                # Known from here on, whoever waits for it: the news of its end may be in the same bytes.
                self._workers[pid] = WorkerProcess(pid, pipe)
                reply.set_result(self._workers[pid])
            elif kind == REFUSED:
                reply, _ = self._asked.pop(0)
                reply.set_exception(LoadFailed(f"No process could be started: {os.strerror(status)}."))
            elif kind == ENDED:
                self._ended(pid, status)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after a forkserver that ended; its workers end with it."""
        if self._control is not None:
            self._control.close()
        self._transport = self._control = None
        self._lost.set_result(None)
        process, self._process = self._process, None
        if process is not None:
            asyncio.get_running_loop().run_in_executor(None, _end, process)
        tail = self._log.tail() if self._log else ""
        asked, self._asked = self._asked, []
        for reply, _ in asked:
            said = f"The forkserver of engine {self.engine} ended. {_last(tail)}"
            reply.set_exception(_ForkserverGoneError(said.strip()))
            reply.exception()  # somebody may not be waiting any more
        for pid, worker in list(self._workers.items()):
            worker.signal(signal.SIGKILL)
            self._ended(pid, -signal.SIGKILL)

    def _ended(self, pid: int, status: int) -> None:
        worker = self._workers.pop(pid, None)
        if worker is not None and not worker.status.done():
            worker.status.set_result(status)


class _ForkserverGoneError(Exception):
    """It ended before it forked."""


def _unwanted(reply: asyncio.Future[WorkerProcess]) -> None:
    if not reply.cancelled() and reply.exception() is None:
        reply.result().signal(signal.SIGKILL)


def _environment() -> dict[str, str]:
    """Return the environment of forkserver and workers: no secrets, no hub, and aborts that do not call a debugger."""
    kept = {key: value for key, value in os.environ.items() if key not in _SECRETS}
    return {**kept, "GGML_NO_BACKTRACE": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a forkserver whose socket was closed; by force when it is busy importing."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1.0)
        return
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait()


def _last(tail: str) -> str:
    return f"Its last words: {tail.splitlines()[-1]}" if tail else ""
