"""Which web pages may use this host: a browser names the page's origin, and only known ones are answered.

Without this any page could have models loaded, asked and unloaded, though it could not read the answers: browsers ask
first only for what a form could not send. Clients that are no browsers send no origin and are not affected.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from litestar import Request

from host.errors import OriginRefused

Asked = Request[Any, Any, Any]


def guard(allowed: tuple[str, ...]) -> Callable[[Asked], Awaitable[None]]:
    """Return what raises `OriginRefused` before a request of another page is answered; `allowed` is `[host] cors`."""

    async def check(request: Asked) -> None:
        sent = next((value for name, value in request.scope["headers"] if name == b"origin"), None)
        if sent is None:
            return
        origin = sent.decode("latin-1")
        if "*" in allowed or origin in allowed or _own(origin, request.headers.get("host", "")):
            return
        raise OriginRefused(
            f"pages of {origin} may not use this host: `cors` in the settings' table `host` can name it"
        )

    return check


def _own(origin: str, host: str) -> bool:
    """Return whether the page came from this very host, not by a name: anybody could let one point here."""
    try:
        name = urlsplit(origin).hostname or ""
        same = urlsplit(origin).netloc == host
    except ValueError:
        return False
    return same and (name == "localhost" or _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
