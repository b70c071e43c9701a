"""What wraps every HTTP request, outside the application: its id, its log line, and the end of clients that leave.

A handler needs to do nothing about a client that goes away: its task is cancelled, whatever it waits for.
"""

from __future__ import annotations

import re
import time
import uuid
from typing import Any

import anyio
import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

log = structlog.get_logger("host.http")
_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_ASKED = (b"x-request-id", b"x-client-request-id")
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
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                await body.disconnected()
                response.gone = True
                group.cancel_scope.cancel()

            group.start_soon(watch)
            await self._app(scope, body.receive, response.send)
            group.cancel_scope.cancel()

    def _log(self, scope: HTTPScope, response: _Response, seconds: float) -> None:
        if scope["path"] in _QUIET and response.status < 400:
            return
        status: Any = "client left" if response.gone else response.status
        log.info("request", method=scope["method"], path=scope["path"], status=status, seconds=round(seconds, 4))


class _Body:
    """The receiving side: passes the body on, then waits for the disconnect."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._complete = anyio.Event()
        self._gone = anyio.Event()

    async def receive(self) -> Any:
        if self._complete.is_set():
            await self._gone.wait()
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._gone.set()
            self._complete.set()
            await anyio.sleep_forever()  # half a body is nobody's error; whoever watches ends this
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
    return b"req_" + uuid.uuid4().hex.encode()
