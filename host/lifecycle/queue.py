"""The queue of calls that wait for one deployment: first come, first served, of bounded size."""

from __future__ import annotations

import asyncio
from collections import deque

from host.errors import ColdframeError, QueueFull, from_body


class Queue:
    """Tickets, each a future that is done when its call may start."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._tickets: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._tickets)

    def join(self, room: int) -> asyncio.Future[None]:
        """Return a new ticket at the end; raises `QueueFull`.

        `room` is how many could start as soon as they are served: those do not count as waiting, so a queue of
        size 0 still takes the call that wakes a cold model.
        """
        if len(self._tickets) >= self._size + max(0, room):
            raise QueueFull(
                f"`{self._name}` is busy, and its queue is full: {len(self._tickets)} of {self._size} requests wait.",
                extra={"queue_size": self._size},
            )
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The caller may be gone as it is refused: the error is then retrieved here.
        ticket.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._tickets.append(ticket)
        return ticket

    def leave(self, ticket: asyncio.Future[None]) -> None:
        """Remove a ticket whose caller stopped waiting."""
        if ticket in self._tickets:
            self._tickets.remove(ticket)

    def serve(self) -> bool:
        """Let the first one start; returns False when the queue is empty."""
        while self._tickets:
            ticket = self._tickets.popleft()
            if not ticket.done():
                ticket.set_result(None)
                return True
        return False

    def refuse(self, error: Exception) -> None:
        """Fail everybody who waits, each with an error object of its own."""
        while self._tickets:
            ticket = self._tickets.popleft()
            if not ticket.done():
                ticket.set_exception(from_body(error.body()) if isinstance(error, ColdframeError) else error)
