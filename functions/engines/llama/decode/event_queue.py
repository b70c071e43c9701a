"""Passes events from the decode thread to event loops: one wake-up per loop and step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from functions.engines.llama.decode.generation import Generation, GenerationEvent

Item = tuple[Generation, list[GenerationEvent | BaseException]]


class EventQueue:
    """Collects events until `send`."""

    def __init__(self, abandoned: Callable[[Generation], None]) -> None:
        self._abandoned = abandoned
        """Called with generations whose event loop is closed."""
        self._events: dict[Generation, list[GenerationEvent | BaseException]] = {}

    def add(self, generation: Generation, events: Iterable[GenerationEvent | BaseException]) -> None:
        """Queue events of a generation."""
        self._events.setdefault(generation, []).extend(events)

    def send(self) -> None:
        """Send all queued events."""
        if not self._events:
            return
        events, self._events = self._events, {}
        if len(events) == 1:
            self._send([*events.items()])
            return
        for _, group in itertools.groupby(sorted(events.items(), key=_loop_id), key=lambda item: item[0].loop):
            self._send(list(group))

    def _send(self, items: list[Item]) -> None:
        """Send the events of generations of one loop."""
        batch = [item for item in items if not item[0].cancelled]
        try:
            items[0][0].loop.call_soon_threadsafe(_hand_out, batch)
        except RuntimeError:
            for generation, _ in batch:
                generation.cancelled = True
                self._abandoned(generation)


def _loop_id(item: Item) -> int:
    return id(item[0].loop)


def _hand_out(batch: list[Item]) -> None:
    for generation, items in batch:
        generation.receive(items)
