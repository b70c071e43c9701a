"""The host's end of one call: answers come in as they are made and wait here until somebody takes them.

It knows order and ends, and nothing of wires or lives.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from host.errors import ColdframeError

END: Final[Any] = object()
"""What `next` returns after the last answer."""


class PendingCall:
    """One call in flight. One taker; whoever makes the answers calls `push`, then `end` or `fail`, on the same loop."""

    __slots__ = ("_answers", "_began", "_cancel", "_error", "_over", "_waiter", "first", "on_over")

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._answers: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._over = False
        self._error: ColdframeError | None = None
        self._cancel = cancel
        self._began = time.perf_counter()
        self.first: float | None = None
        """When the first answer of a call that is asked as a whole was made, in `time.perf_counter`'s seconds."""

        self.on_over: Callable[[], None] | None = None
        """Called once, when no more answers are made, before whoever waits for the last one runs."""

    @property
    def over(self) -> bool:
        """Whether no more answers are made; some may still wait to be taken."""
        return self._over

    @property
    def empty(self) -> bool:
        """Whether `next` has nothing to give but the end."""
        return not self._answers and self._error is None

    def push(self, answer: Any) -> None:
        """Add one answer."""
        if not self._over:
            self._answers.append(answer)
            self._wake()

    def complete(self, seconds: float, answers: list[Any]) -> None:
        """Add all answers as one, and the end; the first of them was made `seconds` after the call was begun."""
        if not self._over:
            self.first = self._began + seconds if answers else None
            self._answers.append(answers)
            self.end()

    def end(self) -> None:
        """Tell that the last answer was added."""
        over, self._over = self._over, True
        if self.on_over is not None and not over:
            self.on_over()
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
