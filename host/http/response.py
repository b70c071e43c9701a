"""A JSON response whose bytes are made already, sent as they are.

Litestar's own response works out headers, cookies, encodings and background tasks each time; answers have none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import Response
from litestar.types import Receive, Scope, Send


class JsonResponse(Response[Any]):
    """A status, 200 by default, and a JSON body: bytes that are JSON, or anything msgspec encodes."""

    def __init__(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        # Litestar's own constructor works out what is never asked for here.
        self._status = self.status_code = status
        self._body = content if isinstance(content, bytes) else msgspec.json.encode(content)
        self._headers = headers

    def to_asgi_response(self, *args: Any, **kwargs: Any) -> Any:
        """Return the ASGI application that sends this response."""
        return self._send

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.send(send)

    async def send(self, send: Send) -> None:
        """Send status, headers and body."""
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(self._body))]
        if self._headers:
            headers += [(name.encode(), value.encode()) for name, value in self._headers.items()]
        await send({"type": "http.response.start", "status": self._status, "headers": headers})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})
