"""Hands events from the decode thread to the event loops that wait for them: one wake-up for each loop and step.

It knows generations and their loops, and nothing of how news come about.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from functions.engines.llama.decode.generation import Generation, GenerationEvent

Item = tuple[Generation, list[GenerationEvent | BaseException]]


class EventQueue:
    """Gathers news until `send`."""

    def __init__(self, abandoned: Callable[[Generation], None]) -> None:
        self._abandoned = abandoned
        """Told of generations whose loop is closed: nobody listens any more."""
        self._events: dict[Generation, list[GenerationEvent | BaseException]] = {}

    def add(self, generation: Generation, events: Iterable[GenerationEvent | BaseException]) -> None:
        """Note what happened."""
        self._events.setdefault(generation, []).extend(events)

    def send(self) -> None:
        """Pass on what was noted."""
        if not self._events:
            return
        events, self._events = self._events, {}
        for loop, group in itertools.groupby(sorted(events.items(), key=_loop_id), key=lambda item: item[0].loop):
            batch = [(generation, items) for generation, items in group if not generation.cancelled]
            try:
                loop.call_soon_threadsafe(_hand_out, batch)
            except RuntimeError:
                for generation, _ in batch:
                    generation.cancelled = True
                    self._abandoned(generation)


def _loop_id(item: Item) -> int:
    return id(item[0].loop)


def _hand_out(batch: list[Item]) -> None:
    for generation, items in batch:
        generation.receive(items)
