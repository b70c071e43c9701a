"""A generation as the client's side sees it: the requests, and an async iterator over the events.

The decode thread delivers events through the event loop of the caller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from functions.engines.llama.decode.sampling import Sampling


class GenerationRequest(msgspec.Struct, kw_only=True, frozen=True):
    """One text to generate."""

    prompt: Sequence[int]
    """At least one token, and fewer than a slot's context."""
    limit: int
    """Tokens to generate at most; prompt and limit together fit into a slot."""
    sampling: Sampling = Sampling()
    stops: tuple[str, ...] = ()
    adapter: str | None = None
    """Name of the LoRA adapter; None for the model without one."""
    endless: bool = False
    """Ignore end-of-generation tokens."""


class TextDelta(msgspec.Struct, frozen=True):
    """More text for the request at `index`."""

    index: int
    text: str


class Finished(msgspec.Struct, frozen=True):
    """The request at `index` is finished. `reason` is `stop` (end-of-generation token or stop string) or `length`."""

    index: int
    reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    accepted_tokens: int = 0
    """Draft tokens that were accepted."""
    rejected_tokens: int = 0
    """Draft tokens that were rejected."""


GenerationEvent = TextDelta | Finished


class Generation:
    """An async iterator over the events of some requests, which ends when all of them are finished.

    Close it (`aclose`, or leave an `aclosing` block) to cancel: nothing is computed for it after the current batch.
    """

    def __init__(self, requests: Sequence[GenerationRequest], cancel: Callable[[Generation], None]) -> None:
        self.requests = tuple(requests)
        self.loop = asyncio.get_running_loop()
        self.cancelled = False
        """Read by the decode thread, written on the event loop."""
        self._open = len(self.requests)
        self._cancel = cancel
        self._events: deque[GenerationEvent | BaseException] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def receive(self, events: Sequence[GenerationEvent | BaseException]) -> None:
        """Receive events from the decode thread; runs on the event loop."""
        self._events.extend(events)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> GenerationEvent:
        while not self._events:
            if not self._open:
                raise StopAsyncIteration
            self._waiter = self.loop.create_future()
            await self._waiter
        item = self._events.popleft()
        if isinstance(item, BaseException):
            self._open = 0
            raise item
        if isinstance(item, Finished):
            self._open -= 1
        return item

    async def aclose(self) -> None:
        """Cancel what is not finished; safe to call at any time, and twice."""
        if self._open and not self.cancelled:
            self._cancel(self)
        self._open = 0
        self._events.clear()
