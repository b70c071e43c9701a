"""Reads a worker's output line by line from its pipe, passes it on, and keeps the tail for when the worker dies."""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

from host.worker.calls import PRIVATE

TAIL_LINES = 40
TAIL_CHARS = 2000
_LINE_MAX = 4096
_PATH = re.compile(r"(?:/[\w.@+~-]+)+/(?=[\w.@+~-]+)")


class LogPipe(asyncio.Protocol):
    """The host's end of one worker's standard output and error."""

    def __init__(self, pass_on: Callable[[str], None]) -> None:
        self._pass_on = pass_on
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._rest = b""
        self._closed = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, pass_on: Callable[[str], None]) -> tuple[LogPipe, int]:
        """Return the pipe and the descriptor to write to, which the caller closes once the worker has it."""
        read, write = os.pipe()
        reader: BinaryIO = os.fdopen(read, "rb", buffering=0)
        pipe = cls(pass_on)
        await asyncio.get_running_loop().connect_read_pipe(lambda: pipe, reader)
        return pipe, write

    def data_received(self, data: bytes) -> None:
        """Take what was printed."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_MAX:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._keep(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end: every writer has closed."""
        if self._rest:
            self._keep(self._rest)
        if not self._closed.done():
            self._closed.set_result(None)

    async def drained(self, seconds: float) -> None:
        """Wait until all that was printed has been read, or so long."""
        await asyncio.wait({self._closed}, timeout=seconds)

    def tail(self) -> str:
        """Return the last lines, without the folders of paths: this is shown to people who are not on this machine."""
        return scrub("\n".join(self._lines))[-TAIL_CHARS:]

    def _keep(self, line: bytes) -> None:
        text = line[:_LINE_MAX].decode(errors="replace").rstrip()
        if text.startswith(PRIVATE):
            self._pass_on(text.removeprefix(PRIVATE))
        elif text:
            self._lines.append(text)
            self._pass_on(text)


def scrub(text: str) -> str:
    """Return the text with every absolute path cut to its last part."""
    return _PATH.sub("…/", text)
