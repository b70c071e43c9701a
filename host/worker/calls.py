"""Running the calls of one instance: each a task that turns what `answer` gives into news.

Used by a worker process and by the inline placement alike; it does not know where the news go.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
import traceback
from collections.abc import AsyncIterator
from typing import Any, Protocol

from host.errors import ColdframeError
from host.function import Instance

PRIVATE = "\x1f"
"""Begins a line of the log that may hold one call's data, and so must not reach the client of another."""


class Outlet(Protocol):
    """Where the news of calls go. Called on the event loop, in order."""

    def answer(self, call: int, answer: Any) -> None:
        """Pass on one answer."""

    def whole(self, call: int, seconds: float, answers: list[Any]) -> None:
        """Pass on all answers of a call, the first made so many seconds after its begin; it ended with them."""

    def end(self, call: int) -> None:
        """Tell that the call's last answer has been passed on."""

    def flush(self) -> None:
        """Pass on now what may be gathered: no other call is being answered that could have news to add."""

    def fail(self, call: int, error: ColdframeError) -> None:
        """Tell that the call ended with an error."""


class Calls:
    """The calls an instance is answering now."""

    def __init__(self, instance: Instance, outlet: Outlet) -> None:
        self._instance = instance
        self._outlet = outlet
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, call: int, request: Any, *, whole: bool = False) -> None:
        """Begin to answer `request`; as a `whole`, nothing is passed on before the last answer is made."""
        task = asyncio.get_running_loop().create_task(self._run(call, request, whole))
        self._tasks[call] = task

    def cancel(self, call: int) -> None:
        """Give the call up; nothing more is reported of it. Unknown calls have ended already."""
        task = self._tasks.get(call)
        if task is not None:
            task.add_done_callback(lambda _: self._tasks.pop(call, None))  # it may not have begun
            task.cancel()

    async def close(self) -> None:
        """Give up every call and wait until each is over."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, call: int, request: Any, whole: bool) -> None:
        try:
            given = self._instance.answer(request)
            if inspect.isawaitable(given):
                self._outlet.answer(call, await given)
                self._outlet.end(call)
                if len(self._tasks) == 1:
                    self._outlet.flush()
            elif whole:
                await self._collect(call, given)
            else:
                await self._stream(call, given)
                self._outlet.end(call)
        except ColdframeError as error:
            self._outlet.fail(call, error)
        except Exception as error:  # noqa: BLE001 - whatever an instance raises ends this call alone
            print("".join(PRIVATE + line for line in _lines(error)), end="", file=sys.stderr)
            self._outlet.fail(call, ColdframeError("The model failed to answer; the host's log has the details."))
        finally:
            self._tasks.pop(call, None)

    async def _stream(self, call: int, answers: AsyncIterator[Any]) -> None:
        try:
            async for answer in answers:
                self._outlet.answer(call, answer)
        finally:
            await _closed(answers)

    async def _collect(self, call: int, answers: AsyncIterator[Any]) -> None:
        began = time.perf_counter()
        seconds = 0.0
        made: list[Any] = []
        try:
            async for answer in answers:
                if not made:
                    seconds = time.perf_counter() - began
                made.append(answer)
        finally:
            await _closed(answers)
        self._outlet.whole(call, seconds, made)


async def _closed(answers: AsyncIterator[Any]) -> None:
    """Close a stream here and now, not when the garbage is collected: a slot must be free before an end is reported."""
    close = getattr(answers, "aclose", None)
    if close is not None:
        await close()


def _lines(error: Exception) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines(keepends=True)
