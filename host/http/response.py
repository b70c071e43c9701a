"""A JSON response whose bytes are made already, sent as they are.

Litestar's own response works out headers, cookies, encodings and background tasks each time; answers have none of them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Response
from litestar.types import Receive, Scope, Send


class JsonResponse(Response[Any]):
    """Status 200 and a JSON body: bytes that are JSON, or anything msgspec encodes."""

    def __init__(self, content: Any) -> None:
        super().__init__(content=None, media_type="application/json")
        self._body = content if isinstance(content, bytes) else msgspec.json.encode(content)

    def to_asgi_response(self, *args: Any, **kwargs: Any) -> Any:
        """Return the ASGI application that sends this response."""
        return self._send

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(self._body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self._body, "more_body": False})
