"""A worker process: plans, loads and serves one instance, on orders that come over its socket.

It ends on the host's order, at SIGTERM, when its host is gone, or when what it runs crashes.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import socket
import sys
import traceback
from typing import Any

import msgspec
import uvloop

from host.errors import ColdframeError, InvalidRequest, LoadFailed, OutOfMemory
from host.function import Instance, Load
from host.wire import (
    FRAME_MAX,
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
    ToWorker,
    encoder,
)
from host.worker.calls import Calls
from host.worker.garbage_collection import collect_seldom


def run(sock: socket.socket) -> int:
    """Serve one instance over `sock` until the end; returns the exit status.

    The loop is left as it is: closing it would wait for threads that are still loading, and the process ends anyway.
    """
    return uvloop.new_event_loop().run_until_complete(Worker(sock).serve())


class Worker:
    """One instance and its wire."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._over = asyncio.Event()
        self._proceed = asyncio.Event()
        self._status = 0
        self._instance: Instance | None = None
        self._calls: Calls | None = None
        self._decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {}
        self._life: asyncio.Task[None] | None = None
        self._wire: Connection[ToWorker]
        self._outbox: WireOutlet

    async def serve(self) -> int:
        """Run until stopped or abandoned; returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._over.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # the forkserver holds it back until now
        self._wire = Connection(ToWorker, self._receive, self._abandoned)
        self._outbox = WireOutlet(self._wire)
        await loop.create_connection(lambda: self._wire, sock=self._sock)
        await self._over.wait()
        if self._calls is not None:
            await self._calls.close()
        if self._instance is not None:
            await asyncio.to_thread(self._instance.close)
        self._wire.close()
        return self._status

    def _receive(self, message: ToWorker) -> None:
        match message:
            case Call():
                self._call(message)
            case Cancel(id=call):
                if self._calls is not None:
                    self._calls.cancel(call)
            case Start():
                self._life = asyncio.get_running_loop().create_task(self._begin(message))
            case Proceed():
                self._proceed.set()
            case Stop():
                self._over.set()

    def _abandoned(self) -> None:
        """End at once: the host is gone, and nobody would read what a gentle end has to say."""
        if not self._over.is_set():
            os._exit(0)

    def _call(self, message: Call) -> None:
        assert self._calls is not None, "calls follow Ready"
        try:
            request = self._decoders[message.operation].decode(message.body)
        except msgspec.MsgspecError as error:  # a Struct made in code, whose values nobody checked
            self._outbox.fail(message.id, InvalidRequest(f"The request is not valid: {error}"))
            return
        self._calls.start(message.id, request, whole=message.whole)

    async def _begin(self, start: Start) -> None:
        try:
            await self._load(start)
        except ColdframeError as error:
            self._fail(error)
        except MemoryError:
            self._fail(OutOfMemory("There was not enough memory to load the model."))
        except Exception as error:  # noqa: BLE001 - whatever a load raises is reported to the host
            traceback.print_exception(error, file=sys.stderr)
            self._fail(LoadFailed(f"The model could not be loaded ({type(error).__name__}); the host's log says more."))

    async def _load(self, start: Start) -> None:
        kind = find(start.instance)
        self._decoders = {name: msgspec.msgpack.Decoder(find(ref)) for name, ref in start.requests.items()}
        plan = await asyncio.to_thread(kind.plan, start.load)
        self._wire.send(Planned(plan))
        await self._proceed.wait()
        instance: Instance = await asyncio.to_thread(kind.load, start.load, plan, self._progress())
        self._instance = instance
        self._calls = Calls(instance, self._outbox)
        collect_seldom()
        self._wire.send(Ready(instance.info()))

    def _progress(self) -> Any:
        loop = asyncio.get_running_loop()

        def report(stage: str, done: int = 0, total: int = 0) -> None:
            # The loop may be closed under a load that is being given up.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wire.send, Progressed(stage, done, total))

        return report

    def _fail(self, error: ColdframeError) -> None:
        self._wire.send(Failed(error.body()))
        self._status = 1


class WireOutlet:
    """Gathers the news of calls and writes them once the loop has run everybody who had any."""

    def __init__(self, wire: Connection[ToWorker]) -> None:
        self._wire = wire
        self._news = _no_news()
        self._size = 0
        self._due = False

    def answer(self, call: int, answer: Any) -> None:
        """Note an answer."""
        body = encoder.encode(answer)
        self._make_room(len(body))
        self._news.answers.append((call, msgspec.Raw(body)))

    def whole(self, call: int, seconds: float, answers: list[Any]) -> None:
        """Note all answers of a call, and its end."""
        bodies = [encoder.encode(answer) for answer in answers]
        self._make_room(sum(map(len, bodies)))
        self._news.whole.append((call, seconds, [msgspec.Raw(body) for body in bodies]))

    def end(self, call: int) -> None:
        """Note the end of a call."""
        self._schedule()
        self._news.ended.append(call)

    def fail(self, call: int, error: ColdframeError) -> None:
        """Note the error a call ended with."""
        self._schedule()
        self._news.errors.append((call, error.body()))

    def _make_room(self, size: int) -> None:
        if size > FRAME_MAX // 2:
            raise FrameTooLong(f"an answer of {size} bytes, and {FRAME_MAX // 2} are allowed")
        if self._size + size > FRAME_MAX // 2:
            self.flush()
        self._size += size
        self._schedule()

    def _schedule(self) -> None:
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send what was noted."""
        news, self._news, self._size, self._due = self._news, _no_news(), 0, False
        if news.answers or news.ended or news.errors or news.whole:
            self._wire.send(news)


def _no_news() -> News:
    return News([], [], [], [])


def find(reference: str) -> Any:
    """Import what `module:name` names; raises `LoadFailed` when its module cannot be imported here."""
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        traceback.print_exception(error, file=sys.stderr)
        raise LoadFailed(f"The model's engine cannot be imported: {error.msg}") from error


__all__ = ("Load", "WireOutlet", "Worker", "find", "run")
