"""ASGI over granian's own protocol, RSGI: a response that is made already leaves in one message instead of two.

Each message to the server's network thread wakes it; for a short request that costs more than the request's own work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]
from litestar.types import ASGIApp

_WHOLE = 1 << 20
"""Bytes up to which a body whose length is known is taken at once."""
_GONE: Any = {"type": "http.disconnect"}


class RsgiApp:
    """What granian calls: each request becomes an ASGI scope, `receive` and `send`."""

    def __init__(self, app: ASGIApp, root_path: str = "") -> None:
        self._app = app
        self._root_path = root_path

    async def __rsgi__(self, scope: Any, proto: Any) -> None:
        """Answer one request."""
        found = asgi_scope(scope, self._root_path)
        sender = _Sender(proto)
        try:
            await self._app(found, _Receiver(found["headers"], proto), sender)
        finally:
            sender.end()


def asgi_scope(scope: Any, root_path: str) -> Any:
    """Return the ASGI scope of a request."""
    path = scope.path
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in scope.headers.items()]
    if scope.authority is not None:  # HTTP/2 has no header `host`
        headers.insert(0, (b"host", scope.authority.encode("latin-1")))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": scope.http_version,
        "server": _address(scope.server),
        "client": _address(scope.client),
        "scheme": scope.scheme,
        "method": scope.method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": scope.query_string.encode(),
        "root_path": root_path,
        "headers": headers,
        "state": {},
    }


@lru_cache(256)
def _address(text: str) -> tuple[str, int] | None:
    """Return what `ADDRESS:PORT` says."""
    address, _, port = text.rpartition(":")
    return (address.strip("[]"), int(port)) if port.isdigit() else None


class _Receiver:
    """ASGI's `receive`: the body, at once where it is known to be short, and then the disconnect."""

    __slots__ = ("_chunks", "_headers", "_over", "_proto")

    def __init__(self, headers: list[tuple[bytes, bytes]], proto: Any) -> None:
        self._headers = headers
        self._proto = proto
        self._chunks: AsyncIterator[bytes] | None = None
        self._over = False

    async def __call__(self) -> Any:
        if self._over:
            await self._proto.client_disconnect()
            return _GONE
        try:
            if self._chunks is None and self._short():
                self._over = True
                return {"type": "http.request", "body": await self._proto(), "more_body": False}
            return await self._chunk()
        except ProtocolClosed:
            self._over = True
            return _GONE

    def _short(self) -> bool:
        length, coded = b"0", False
        for name, value in self._headers:
            if name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                coded = True
        return not coded and length.isdigit() and int(length) <= _WHOLE

    async def _chunk(self) -> Any:
        if self._chunks is None:
            self._chunks = aiter(self._proto)
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._over = True
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.request", "body": chunk, "more_body": True}


class _Sender:
    """ASGI's `send`: a response whose body comes whole is passed on as one."""

    __slots__ = ("_headers", "_proto", "_status", "_stream")

    def __init__(self, proto: Any) -> None:
        self._proto = proto
        self._status = 0
        self._headers: list[tuple[str, str]] = []
        self._stream: Any = None

    async def __call__(self, message: Any) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._status = message["status"]
            self._headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in message.get("headers", ())]
        elif kind == "http.response.body":
            body, more = message.get("body", b""), message.get("more_body", False)
            if self._stream is None and not more:
                self._proto.response_bytes(self._status, self._headers, bytes(body))
                return
            if self._stream is None:
                self._stream = self._proto.response_stream(self._status, self._headers)
            if body:
                await self._stream.send_bytes(bytes(body))
            if not more:
                self.end()

    def end(self) -> None:
        """End a response that came in parts: granian does when nobody holds its stream any more."""
        self._stream = None
