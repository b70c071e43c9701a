"""Log lines: a stream that takes lines at once or gathers them for a moment, and the line of each HTTP request.

A line of its own per request, made by structlog and written by a system call, cost as much as the call itself.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from contextvars import ContextVar
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, TextIO

import structlog

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the HTTP request that is being answered; it stands in every line that is logged meanwhile."""
DELAY = 0.05
"""Seconds after which gathered lines are written, at the latest."""
_MOST = 500
_log = structlog.get_logger("host.http")


class LogStream:
    """Lines in the order they were logged. What `later` takes is written soon; `write` writes it all at once."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._lock = threading.RLock()
        atexit.register(self.flush)

    def write(self, text: str) -> None:
        """Write text behind all that was gathered before."""
        with self._lock:
            self._lines.append(text)

    def flush(self) -> None:
        """Write what was gathered."""
        with self._lock:
            lines, self._lines = self._lines, []
            if lines:
                self._out.write("".join(lines))
                self._out.flush()

    def later(self, line: str, loop: asyncio.AbstractEventLoop) -> None:
        """Take a line that may be written `DELAY` seconds later; called on the loop."""
        with self._lock:
            self._lines.append(line)
            full = len(self._lines) >= _MOST
        if full:
            self.flush()
        elif self._timer is None:
            self._timer = loop.call_later(DELAY, self._due)

    def _due(self) -> None:
        self._timer = None
        self.flush()


class RequestLog:
    """The lines of HTTP requests: as JSON made here, or by structlog as long as no stream is set."""

    def __init__(self) -> None:
        self._stream: LogStream | None = None
        self._second = 0
        self._date = ""

    def use(self, stream: LogStream | None) -> None:
        """Write JSON to `stream` from now on, or have structlog do it."""
        self._stream = stream

    def flush(self) -> None:
        """Write the lines that wait to be written."""
        if self._stream is not None:
            self._stream.flush()

    def request(self, method: str, path: str, status: int | str, seconds: float, request_id: str) -> None:
        """Log one request that was answered, or whose client left."""
        stream = self._stream
        if stream is None:
            _log.info("request", method=method, path=path, status=status, seconds=round(seconds, 4))
            return
        shown = status if isinstance(status, int) else quoted(status)
        line = (
            f'{{"method": {quoted(method)}, "path": {quoted(path)}, "status": {shown}, "seconds": {round(seconds, 4)}, '
            f'"event": "request", "request_id": {quoted(request_id)}, "level": "info", "timestamp": "{self._now()}"}}\n'
        )
        stream.later(line, asyncio.get_running_loop())

    def _now(self) -> str:
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second, self._date = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._date}.{int((now - second) * 1e6):06d}Z"


LOG = RequestLog()


def add_request_id(_: Any, __: str, event: Any) -> Any:
    """Add the request's id to a line; a processor of structlog."""
    found = REQUEST_ID.get()
    if found is not None:
        event.setdefault("request_id", found)
    return event
