"""The decode thread: continuous batching over one context, which nobody else touches.

Every step computes one token for each sequence that generates, and prompts up to the batch's size. Requests come in
through a queue; the news of a step go out with one call per event loop. It knows nothing of chats or templates.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Sequence as Many
from queue import Empty, SimpleQueue

from functions.engines.llama.context import ABORTED, COMPUTED, NO_ROOM, Context
from functions.engines.llama.generation import Generation, News, Want
from functions.engines.llama.sequence import Sequence
from functions.engines.llama.slots import Slots
from functions.engines.llama.vocabulary import Vocabulary
from host.errors import ColdframeError, ShuttingDown

logger = logging.getLogger(__name__)

Part = tuple[Sequence, int, int]
"""A sequence's share of a batch: how many tokens, and the batch index of the last of them."""


class Decoder:
    """Generates text for many requests side by side."""

    def __init__(self, context: Context, vocabulary: Vocabulary, slots: Slots, *, length: int) -> None:
        self._context = context
        self._vocabulary = vocabulary
        self._slots = slots
        self._length = length
        self._inbox: SimpleQueue[Generation | None] = SimpleQueue()
        self._waiting: deque[Sequence] = deque()
        self._active: list[Sequence] = []
        self._suspects: deque[Sequence] = deque()
        """Sequences of a batch that failed, to be computed one by one so that only the guilty one gets the error."""
        self._news: dict[Generation, list[News | BaseException]] = {}
        self._computing: tuple[Generation, ...] = ()
        self._cramped = False
        """The cache was full: nobody else gets a slot before somebody is through."""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="llama-decode", daemon=True)
        self._thread.start()

    def generate(self, wants: Many[Want]) -> Generation:
        """Return the news of these wants; call it on an event loop. Close what it returns."""
        if self._closed:
            raise ShuttingDown("this model is being unloaded")
        generation = Generation(wants, self._give_up)
        self._inbox.put(generation)
        return generation

    def close(self) -> None:
        """End the thread; requests in progress get `ShuttingDown`."""
        self._closed = True
        self._inbox.put(None)
        self._context.abort(True)
        self._thread.join()

    def counts(self) -> tuple[int, int]:
        """Return how many sequences compute and how many wait; a glance from another thread."""
        return len(self._active), len(self._waiting)

    def _give_up(self, generation: Generation) -> None:
        """Mark a generation as not wanted any more; runs on the event loop."""
        generation.cancelled = True
        computing = self._computing
        if computing and all(other.cancelled for other in computing):
            self._context.abort(True)
        self._inbox.put(generation)

    # The rest runs on the decode thread.

    def _run(self) -> None:
        while self._receive():
            try:
                self._step()
            except Exception as error:
                logger.exception("a decode step failed")
                self._forget(self._active)
                self._fail(self._active + list(self._waiting), error)
            self._deliver()
        self._fail(self._active + list(self._waiting), ShuttingDown("this model was unloaded"))
        while (rest := self._poll()) is not None:
            self._tell(rest, ShuttingDown("this model was unloaded"))
        self._deliver()

    def _receive(self) -> bool:
        """Take in what was asked or given up meanwhile; waits when there is nothing to do. False means the end."""
        busy = self._active or self._waiting
        item = self._poll(none=_NOTHING) if busy else self._inbox.get()
        while item is not _NOTHING:
            if item is None:
                return False
            self._leave(item) if item.cancelled else self._enter(item)
            item = self._poll(none=_NOTHING)
        return not self._closed

    def _poll(self, none: Generation | None = None) -> Generation | None:
        try:
            return self._inbox.get_nowait()
        except Empty:
            return none

    def _enter(self, generation: Generation) -> None:
        try:
            for index in range(len(generation.wants)):
                self._waiting.append(Sequence(generation, index, self._vocabulary, self._length))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this request's own
            self._fail([one for one in self._waiting if one.generation is generation], error)
            self._tell(generation, error)

    def _leave(self, generation: Generation) -> None:
        for sequence in [*self._active, *self._waiting]:
            if sequence.generation is generation:
                self._end(sequence)

    def _step(self) -> None:
        self._admit()
        parts = self._fill()
        if parts:
            self._settle(parts, self._compute(parts))

    def _admit(self) -> None:
        """Give idle slots to those who wait, in order; one whose prefix is just being computed lets others pass."""
        held: deque[Sequence] = deque()
        self._cramped = self._cramped and bool(self._active)
        while self._waiting and self._slots.free and not self._cramped:
            sequence = self._waiting.popleft()
            slot = self._slots.take(sequence.tokens)
            if slot is None:
                held.append(sequence)
                continue
            sequence.enter(slot)
            self._active.append(sequence)
        self._waiting.extendleft(reversed(held))

    def _fill(self) -> list[Part]:
        """Fill the batch: first those who generate, then prompts, the oldest first."""
        while self._suspects and self._suspects[0] not in self._active:
            self._suspects.popleft()
        among = [self._suspects[0]] if self._suspects else self._active
        self._context.begin()
        room = self._context.size
        parts: list[Part] = []
        for sequence in sorted(among, key=_has_prompt_left):
            count = min(room, sequence.pending)
            if not count:
                break
            slot = sequence.slot
            assert slot is not None
            start, end = slot.computed, slot.computed + count
            tokens = sequence.tokens[start:end]
            index = self._context.add(slot.id, tokens, start, output=end == len(sequence.tokens))
            parts.append((sequence, count, index))
            room -= count
        return parts

    def _compute(self, parts: list[Part]) -> int:
        self._context.abort(False)
        self._computing = tuple({sequence.generation for sequence, _, _ in parts})
        try:
            if self._closed or all(generation.cancelled for generation in self._computing):
                return ABORTED
            return self._context.compute()
        finally:
            self._computing = ()

    def _settle(self, parts: list[Part], outcome: int) -> None:
        if outcome == COMPUTED:
            self._harvest(parts)
        elif outcome == NO_ROOM:
            self._make_room(parts)
        elif outcome == ABORTED:
            self._look_again(parts)
        else:
            self._suspect(parts, outcome)

    def _harvest(self, parts: list[Part]) -> None:
        for sequence, count, index in parts:
            slot = sequence.slot
            assert slot is not None
            slot.computed += count
            if sequence.generation.cancelled or slot.computed < len(sequence.tokens):
                continue
            news, over = sequence.advance(self._context.handle, index)
            if news:
                self._news.setdefault(sequence.generation, []).extend(news)
            if over:
                self._end(sequence)
        if self._suspects and self._suspects[0] is parts[0][0]:
            self._suspects.popleft()

    def _make_room(self, parts: list[Part]) -> None:
        """Nothing was computed: forget what idle slots keep, else let the youngest start over when there is room."""
        if self._slots.drop_idle():
            return
        if len(self._active) == 1:
            self._fail([self._active[0]], ColdframeError("the cache of this model has no room for this request"))
            return
        self._cramped = True
        youngest = self._active.pop()
        self._forget([youngest])
        assert youngest.slot is not None
        self._slots.release(youngest.slot)
        youngest.slot = None
        self._waiting.appendleft(youngest)

    def _look_again(self, parts: list[Part]) -> None:
        """Ask memory how far each sequence of a batch that was broken off has come."""
        for sequence, _, _ in parts:
            slot = sequence.slot
            assert slot is not None
            slot.computed = max(0, min(self._context.length(slot.id), len(sequence.tokens) - 1))
            if not self._context.cut(slot.id, slot.computed):
                self._slots.drop(slot)

    def _suspect(self, parts: list[Part], outcome: int) -> None:
        """Computing failed: compute the batch's sequences one by one, and fail the one that fails alone."""
        logger.error("llama.cpp could not compute a batch of %d sequences (code %d)", len(parts), outcome)
        sequences = [sequence for sequence, _, _ in parts]
        self._forget(sequences)
        if len(parts) > 1:
            self._suspects = deque(sequences)
        else:
            message = f"llama.cpp could not compute this request (code {outcome})"
            self._fail(sequences, ColdframeError(message))

    def _forget(self, sequences: Many[Sequence]) -> None:
        for sequence in sequences:
            if sequence.slot is not None:
                self._slots.drop(sequence.slot)

    def _fail(self, sequences: list[Sequence], error: BaseException) -> None:
        """End these and everything else their generations wait for, with the error."""
        generations = {sequence.generation for sequence in sequences}
        for generation in generations:
            self._leave(generation)
            self._tell(generation, error)

    def _tell(self, generation: Generation, error: BaseException) -> None:
        self._news.setdefault(generation, []).append(error)

    def _end(self, sequence: Sequence) -> None:
        if sequence.slot is not None:
            self._active.remove(sequence)
            self._slots.release(sequence.slot)
            sequence.slot = None
        else:
            self._waiting.remove(sequence)
        self._cramped = False
        sequence.close()

    def _deliver(self) -> None:
        """Send the step's news, with one call for each event loop (there is one, outside of tests)."""
        if not self._news:
            return
        news, self._news = self._news, {}
        for loop, group in itertools.groupby(sorted(news.items(), key=_loop_id), key=lambda item: item[0].loop):
            batch = [(generation, items) for generation, items in group if not generation.cancelled]
            try:
                loop.call_soon_threadsafe(_hand_out, batch)
            except RuntimeError:
                for generation, _ in batch:  # the loop is closed: nobody listens any more
                    generation.cancelled = True
                    self._leave(generation)


_NOTHING: Generation = object.__new__(Generation)


def _has_prompt_left(sequence: Sequence) -> bool:
    return sequence.pending > 1


def _loop_id(item: tuple[Generation, list[News | BaseException]]) -> int:
    return id(item[0].loop)


def _hand_out(batch: list[tuple[Generation, list[News | BaseException]]]) -> None:
    for generation, items in batch:
        generation.receive(items)
