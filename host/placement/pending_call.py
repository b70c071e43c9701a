"""The host's end of one call: buffers answers as they arrive until they are read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from host.errors import ColdframeError

END: Final[Any] = object()
"""What `next` returns after the last answer."""


class PendingCall:
    """One call in flight. It has one reader; the producer calls `push`, then `end` or `fail`, on the same loop."""

    __slots__ = ("_answers", "_cancel", "_error", "_over", "_waiter")

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._answers: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._over = False
        self._error: ColdframeError | None = None
        self._cancel = cancel

    @property
    def over(self) -> bool:
        """Whether no more answers are made; some may still wait to be taken."""
        return self._over

    def push(self, answer: Any) -> None:
        """Add one answer."""
        if not self._over:
            self._answers.append(answer)
            self._wake()

    def end(self) -> None:
        """Tell that the last answer was added."""
        self._over = True
        self._wake()

    def fail(self, error: ColdframeError) -> None:
        """Tell that the call ended with an error; the taker meets it after the answers that came before."""
        if not self._over:
            self._error = error
            self.end()

    async def next(self) -> Any:
        """Return the next answer, or `END`; raises the error the call ended with."""
        while not self._answers:
            if self._error is not None:
                raise self._error
            if self._over:
                return END
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._answers.popleft()

    def cancel(self) -> None:
        """Give the call up where it is being answered."""
        if not self._over:
            self._over = True
            self._cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
