"""What wraps every HTTP request, outside the application: its id, its log line, and the end of clients that leave.

A handler needs to do nothing about a client that goes away: its task is cancelled, whatever it waits for.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import time
from typing import Any

import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

log = structlog.get_logger("host.http")
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
        structlog.contextvars.bind_contextvars(request_id=response.id)
        began = time.perf_counter()
        try:
            if request["method"] == "POST":
                await self._while_connected(scope, receive, response)
            else:
                await self._app(scope, receive, response.send)
        finally:
            self._log(request, response, time.perf_counter() - began)
            structlog.contextvars.unbind_contextvars("request_id")

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
        log.info("request", method=scope["method"], path=scope["path"], status=status, seconds=round(seconds, 4))


class _Watch:
    """Cancels the request's task when the client leaves. Requests that are answered at once are not watched at all."""

    def __init__(self, body: _Body, response: _Response) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self._body = body
        self._response = response
        self._watching: asyncio.Task[None] | None = None
        self._timer = task.get_loop().call_later(UNWATCHED, self._start)

    def stop(self) -> None:
        """Watch no more."""
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _start(self) -> None:
        self._watching = self.task.get_loop().create_task(self._watch())

    async def _watch(self) -> None:
        await self._body.disconnected()
        self._response.gone = True
        self.task.cancel()


class _Body:
    """The receiving side: passes the body on, then waits for the disconnect."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._complete = asyncio.Event()
        self._gone = asyncio.Event()

    async def receive(self) -> Any:
        if self._complete.is_set():
            await self._gone.wait()
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._gone.set()
            self._complete.set()
            await asyncio.get_running_loop().create_future()  # half a body is nobody's error; whoever watches ends this
        elif not message.get("more_body", False):
            self._complete.set()
        return message

    async def disconnected(self) -> None:
        """Return when the client is gone. Reads nothing before the application has read the body."""
        await self._complete.wait()
        while not self._gone.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._gone.set()


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
