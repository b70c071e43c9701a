"""An httpx transport that calls an ASGI application in this process; answers stream as they come.

Closing a response before its end is a disconnect to the application.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx


class AsgiTransport(httpx.AsyncBaseTransport):
    """A transport that has no network below it."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response once its head is there."""
        exchange = _Exchange(request, await request.aread())
        return await exchange.begin(self._app)


class _Exchange(httpx.AsyncByteStream):
    """One request and the stream of its answer."""

    def __init__(self, request: httpx.Request, body: bytes) -> None:
        self._scope = _scope(request)
        self._body: bytes | None = body
        self._sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._task: asyncio.Task[None]

    async def begin(self, app: Any) -> httpx.Response:
        self._task = asyncio.get_running_loop().create_task(self._run(app))
        try:
            head = await self._sent.get()
        except BaseException:
            await self.aclose()
            raise
        if head is None:
            await self._task
            raise httpx.RemoteProtocolError("the application answered nothing")
        return httpx.Response(head["status"], headers=head["headers"], stream=self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self._sent.get()) is not None:
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body", False):
                return

    async def aclose(self) -> None:
        """Tell the application that the client is gone, and wait until it has heard."""
        self._gone.set()
        await asyncio.wait({self._task})

    async def _run(self, app: Any) -> None:
        try:
            await app(self._scope, self._receive, self._sent.put)
        finally:
            self._sent.put_nowait(None)

    async def _receive(self) -> dict[str, Any]:
        if self._body is None:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _scope(request: httpx.Request) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path,
        "root_path": "",
        "query_string": request.url.query,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "server": (request.url.host, 80),
        "client": ("127.0.0.1", 0),
        "extensions": {},
    }
