"""One request to a function's route, and its answer on standard output as it comes; over HTTP or in this process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from host.cli import Failure, client
from host.cli.events import events
from host.cli.progress import Line
from host.function import Cli

if TYPE_CHECKING:
    import httpx


class Screen:
    """Standard output: the text the shell makes of answers, or their JSON where there is none."""

    def __init__(self, shell: Cli | None) -> None:
        self._shell = shell
        self._ended = True

    def answer(self, data: bytes) -> None:
        """Print one whole answer."""
        if self._shell is None:
            self._write(data.decode(errors="replace") + "\n")
        else:
            self._write(self._shell.show(_decode(data)))
            self.end()

    def event(self, data: bytes) -> None:
        """Print what one event of a stream brings; raises `Failure` when it brings an error."""
        if b'"error"' in data:
            event = _decode(data)
            if isinstance(event, dict) and event.get("error"):
                raise client.from_error(event["error"])
        if self._shell is None:
            self._write(data.decode(errors="replace") + "\n")
        else:
            self._write(self._shell.show(_decode(data)))

    def end(self) -> None:
        """End the last line, if it has not ended."""
        if not self._ended:
            self._write("\n")

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._ended = text.endswith("\n")


async def ask(http: httpx.AsyncClient, place: str, path: str, body: dict[str, Any], screen: Screen, line: Line) -> None:
    """Post the body and print the answer. Raises `Failure` for what goes wrong, also in the middle of a stream."""
    with client.failures(place):
        async with http.stream("POST", place + path, json=body) as response:
            if not response.is_success:
                raise client.refusal(await response.aread(), response.status_code, place)
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                content = await response.aread()
                line.clear()
                screen.answer(content)
                return
            try:
                async for data in events(response.aiter_bytes(), line.show):
                    line.clear()
                    screen.event(data)
            finally:
                line.clear()
                screen.end()


def _decode(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        raise Failure("the answer is not JSON; --raw prints it as it is") from None
