"""The host's end of one forkserver: starts it, asks it for workers, and hears how each of them ended."""

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
from host.worker.forkserver import ENDED, FORK, FORKED, REPLY
from host.placement.process.log import LogPipe

log = structlog.get_logger(__name__)
_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "COLDFRAME_API_KEYS")
_LOG_WAIT = 0.5


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
        self._asked: list[asyncio.Future[int]] = []
        self._workers: dict[int, WorkerProcess] = {}
        self._early: dict[int, int] = {}
        self._turn = asyncio.Lock()
        self._log: LogPipe | None = None
        self._pending: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to start the forkserver, unless it runs; it imports the engine in its own time."""
        if self._process is None and (self._pending is None or self._pending.done()):
            self._pending = asyncio.get_running_loop().create_task(self._start())

    async def fork(self, sock: socket.socket, pass_on: Callable[[str], None]) -> WorkerProcess:
        """Fork one worker that serves `sock`. Waits for the forkserver's imports; raises `LoadFailed`."""
        async with self._turn:
            self.start()
            if self._pending is not None:
                await asyncio.shield(self._pending)
            pipe, write = await LogPipe.open(pass_on)
            try:
                pid = await self._ask(sock, write)
            finally:
                os.close(write)
            worker = WorkerProcess(pid, pipe)
            self._workers[pid] = worker
            if pid in self._early:
                self._ended(pid, self._early.pop(pid))
            return worker

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
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            self._log, write = await LogPipe.open(lambda line: log.info("forkserver", engine=self.engine, line=line))
            command = [sys.executable, "-m", "host.worker.forkserver", str(theirs.fileno()), *self.preload]
            self._process = subprocess.Popen(  # noqa: S603 - our own module, our own interpreter
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                env=_environment(),
                start_new_session=True,
            )
            os.close(write)
        finally:
            theirs.close()
        self._buffer = b""
        # The transport reads from a duplicate: asyncio does not let us send descriptors through a socket it owns.
        self._control = ours
        self._transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, sock=ours.dup())

    async def _ask(self, sock: socket.socket, write: int) -> int:
        reply: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked.append(reply)
        try:
            assert self._control is not None
            socket.send_fds(self._control, [FORK], [sock.fileno(), write])
            return await asyncio.shield(reply)
        except OSError:
            raise LoadFailed(f"The forkserver of engine {self.engine} is gone.") from None
        except asyncio.CancelledError:
            # The worker will come all the same: end it when it does.
            reply.add_done_callback(lambda done: self._unwanted(done))
            raise

    def _unwanted(self, reply: asyncio.Future[int]) -> None:
        if not reply.cancelled() and reply.exception() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(reply.result(), signal.SIGKILL)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= REPLY.size:
            kind, pid, status = REPLY.unpack_from(self._buffer)
            self._buffer = self._buffer[REPLY.size :]
            if kind == FORKED:
                reply = self._asked.pop(0)
                if not reply.done():
                    reply.set_result(pid)
            elif kind == ENDED:
                self._ended(pid, status)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._control is not None:
            self._control.close()
        process, self._process = self._process, None
        if process is not None:
            asyncio.get_running_loop().run_in_executor(None, _end, process)
        tail = self._log.tail() if self._log else ""
        for reply in self._asked:
            if not reply.done():
                reply.set_exception(LoadFailed(f"The forkserver of engine {self.engine} ended. {_last(tail)}".strip()))
        self._asked.clear()
        for pid in list(self._workers):
            self._ended(pid, -signal.SIGKILL)

    def _ended(self, pid: int, status: int) -> None:
        worker = self._workers.pop(pid, None)
        if worker is None:
            self._early[pid] = status
        elif not worker.status.done():
            worker.status.set_result(status)


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
