"""What wraps every HTTP request, outside the application: its id, its log line, and the end of clients that leave.

A handler needs to do nothing about a client that goes away: its task is cancelled, whatever it waits for.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import time
from collections import deque
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from host.request_log import LOG, REQUEST_ID

_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_PROCESS = secrets.token_hex(8).encode()
_COUNT = itertools.count()
_ASKED = (b"x-request-id", b"x-client-request-id")
UNWATCHED = 0.01
"""Seconds a request may take before anybody looks whether its client is still there."""
_QUIET = ("/livez", "/readyz", "/health", "/metrics")


class RequestScope:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI has it."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        request: HTTPScope = scope
        response = _Response(send, _request_id(request["headers"]))
        token = REQUEST_ID.set(response.id)
        began = time.perf_counter()
        try:
            if request["method"] == "POST":
                await self._while_connected(scope, receive, response)
            else:
                await self._app(scope, receive, response.send)
        finally:
            self._log(request, response, time.perf_counter() - began)
            REQUEST_ID.reset(token)

    async def _while_connected(self, scope: Scope, receive: Receive, response: _Response) -> None:
        """Run the application until it is done or the client is gone."""
        body = _Body(receive)
        watch = _Watch(body, response)
        try:
            await self._app(scope, body.receive, response.send)
        except asyncio.CancelledError:
            if not response.gone:
                raise
            watch.task.uncancel()  # the cancellation was the watch's, and ends here
        finally:
            watch.stop()

    def _log(self, scope: HTTPScope, response: _Response, seconds: float) -> None:
        if scope["path"] in _QUIET and response.status < 400:
            return
        status: Any = "client left" if response.gone else response.status
        LOG.request(scope["method"], scope["path"], status, seconds, response.id)


class _Ticker:
    """Starts watches that are `UNWATCHED` seconds old: one timer for all requests, not one for each."""

    def __init__(self) -> None:
        self._young: deque[_Watch] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, watch: _Watch, loop: asyncio.AbstractEventLoop) -> None:
        """Have a watch started in a moment, unless it is stopped before."""
        if loop is not self._loop:  # the timer of another loop, which may have ended, is none of this one's
            self._loop, self._timer = loop, None
            self._young.clear()
        self._young.append(watch)
        if self._timer is None:
            self._timer = loop.call_later(UNWATCHED, self._tick)

    def _tick(self) -> None:
        """Start those whose time has come; those that were stopped only leave."""
        young, now = self._young, time.perf_counter()
        while young and (young[0].stopped or now >= young[0].due):
            watch = young.popleft()
            if not watch.stopped:
                watch.start()
        assert self._loop is not None
        self._timer = self._loop.call_later(max(0.001, young[0].due - now), self._tick) if young else None


_TICKER = _Ticker()


class _Watch:
    """Cancels the request's task when the client leaves. Requests that are answered at once are not watched at all."""

    __slots__ = ("_body", "_response", "_watching", "due", "stopped", "task")

    def __init__(self, body: _Body, response: _Response) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.due = time.perf_counter() + UNWATCHED
        self.stopped = False
        self._body = body
        self._response = response
        self._watching: asyncio.Task[None] | None = None
        _TICKER.add(self, task.get_loop())

    def stop(self) -> None:
        """Watch no more."""
        self.stopped = True
        if self._watching is not None:
            self._watching.cancel()

    def start(self) -> None:
        """Begin to watch."""
        self._watching = self.task.get_loop().create_task(self._watch())

    async def _watch(self) -> None:
        await self._body.disconnected()
        self._response.gone = True
        self.task.cancel()


class _Body:
    """The receiving side: passes the body on, then waits for the disconnect."""

    __slots__ = ("_complete", "_gone", "_receive", "_waiting")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._complete = False
        self._gone = False
        self._waiting: list[asyncio.Future[None]] = []

    async def receive(self) -> Any:
        if self._complete:
            while not self._gone:
                await self._change()
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._note(gone=True)
            await asyncio.get_running_loop().create_future()  # half a body is nobody's error; whoever watches ends this
        elif not message.get("more_body", False):
            self._note(gone=False)
        return message

    async def disconnected(self) -> None:
        """Return when the client is gone. Reads nothing before the application has read the body."""
        while not self._complete:
            await self._change()
        while not self._gone:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._note(gone=True)

    def _note(self, *, gone: bool) -> None:
        self._complete = True
        self._gone = gone
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _change(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future


class _Response:
    """The sending side: adds the request's id, and remembers what was sent."""

    def __init__(self, send: Send, request_id: bytes) -> None:
        self._send = send
        self._header = (b"x-request-id", request_id)
        self.id = request_id.decode("ascii")
        self.status = 0
        self.gone = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), self._header]
        await self._send(message)


def _request_id(headers: Any) -> bytes:
    """Return the id the client sent, where it is fit to be a header, else a new one."""
    for name, value in headers:
        if name in _ASKED and _ID.fullmatch(value):
            return bytes(value)
    return b"req_%s%08x" % (_PROCESS, next(_COUNT))
