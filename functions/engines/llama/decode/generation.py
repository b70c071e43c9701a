"""One request to the decoder, seen from both sides: what is wanted, and the news that comes back.

The asyncio side iterates over a `Generation`; the decode thread fills it through the event loop. It knows nothing of
chats or wire formats.
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
    """The adapter to compute with; None is the model as it is."""
    endless: bool = False
    """Do not stop where the model would end."""


class TextDelta(msgspec.Struct, frozen=True):
    """More text for one of the wants."""

    index: int
    text: str


class Finished(msgspec.Struct, frozen=True):
    """One of the wants is through: `stop` (the model ended, or a stop string came) or `length`."""

    index: int
    reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    accepted_tokens: int = 0
    """Draft tokens that the model took."""
    rejected_tokens: int = 0
    """Draft tokens that it did not take."""


GenerationEvent = TextDelta | Finished


class Generation:
    """The news of some wants, as an async iterator that is over when all of them are through.

    Close it (`aclose`, or leave an `aclosing` block) to give up: nothing is computed for it after the current batch.
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
        """Take news of the decode thread; runs on the event loop."""
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
        """Give up what is not through yet; safe to call at any time, and twice."""
        if self._open and not self.cancelled:
            self._cancel(self)
        self._open = 0
        self._events.clear()
