"""The decode thread: continuous batching over one context.

Each step computes one token per generating sequence, verifies draft tokens, and prefills prompts within a budget that
keeps the gaps between tokens short. Requests arrive through a queue; the events of a step are sent while the next
one is computed.
"""

from __future__ import annotations

import bisect
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence as Many
from queue import Empty, SimpleQueue

from functions.engines.llama.decode.batch_builder import BatchBuilder, Part
from functions.engines.llama.decode.event_queue import EventQueue
from functions.engines.llama.decode.generation import Generation, GenerationRequest
from functions.engines.llama.decode.prefill_budget import PrefillBudget
from functions.engines.llama.decode.sampling import NonFiniteLogits
from functions.engines.llama.decode.sequence import Sequence
from functions.engines.llama.model.context import ABORTED, COMPUTED, NO_ROOM, Context
from functions.engines.llama.model.vocabulary import Vocabulary
from functions.engines.llama.prefix_cache.slots import Slots
from functions.engines.llama.speculation.speculator import Speculator
from host.errors import ColdframeError, ShuttingDown

logger = logging.getLogger(__name__)


class Decoder:
    """Generates text for concurrent requests."""

    def __init__(
        self,
        context: Context,
        vocabulary: Vocabulary,
        slots: Slots,
        *,
        length: int,
        chunk: int | None = None,
        one_at_a_time: bool = False,
        speculator: Speculator | None = None,
        draft_tokens: int = 0,
    ) -> None:
        """Start the thread.

        `length` is a slot's context in tokens; `chunk` the prefill tokens per step of a long prompt, by default as many
        as keep answers steady; `one_at_a_time` computes a single sequence per step. `speculator` drafts at most
        `draft_tokens` per sequence and is closed with the decoder.
        """
        self._context = context
        self._vocabulary = vocabulary
        self._slots = slots
        self._length = length
        self._prefill_budget = PrefillBudget(context.size, chunk)
        self._batch_builder = BatchBuilder(
            context, self._prefill_budget, one_at_a_time=one_at_a_time, speculator=speculator
        )
        self._speculator = speculator
        self._draft_tokens = draft_tokens
        self._requests: SimpleQueue[Generation | None] = SimpleQueue()
        self._event_queue = EventQueue(self._requests.put)
        self._arrivals = itertools.count()
        self._waiting: list[Sequence] = []
        self._active: list[Sequence] = []
        self._suspects: deque[Sequence] = deque()
        """Sequences of a failed batch, computed one by one so that only the offending request fails."""
        self._computing: tuple[Generation, ...] = ()
        self._cache_full = False
        """The KV cache is full: no request is admitted until a sequence ends."""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="llama-decode", daemon=True)
        self._thread.start()

    def generate(self, requests: Many[GenerationRequest]) -> Generation:
        """Start generating for these requests. Call it on an event loop, and close the returned generation."""
        if self._closed:
            raise ShuttingDown("this model is being unloaded")
        generation = Generation(requests, self._cancel)
        self._requests.put(generation)
        return generation

    def close(self) -> None:
        """End the thread; requests in progress get `ShuttingDown`."""
        self._closed = True
        self._requests.put(None)
        self._context.abort(True)
        self._thread.join()
        if self._speculator is not None:
            self._speculator.close()

    @property
    def slots(self) -> Slots:
        """The slots. Only valid while nothing is computed: before the first request or after `close`."""
        return self._slots

    def counts(self) -> tuple[int, int]:
        """Return the numbers of active and of waiting sequences; approximate from other threads."""
        return len(self._active), len(self._waiting)

    def _cancel(self, generation: Generation) -> None:
        """Cancel a generation, and the current batch if nobody else needs it; runs on the event loop."""
        generation.cancelled = True
        computing = self._computing
        if computing and all(other.cancelled for other in computing):
            self._context.abort(True)
        self._requests.put(generation)

    # The rest runs on the decode thread.

    def _run(self) -> None:
        while self._receive():
            try:
                self._step()
            except Exception as error:
                logger.exception("a decode step failed")
                self._forget(self._active)
                self._fail(self._active + self._waiting, error)
            if not self._active and not self._waiting:
                self._event_queue.send()
        self._fail(self._active + self._waiting, ShuttingDown("this model was unloaded"))
        while (rest := self._poll()) is not None:
            self._report_error(rest, ShuttingDown("this model was unloaded"))
        self._event_queue.send()

    def _receive(self) -> bool:
        """Process new and cancelled generations, waiting if idle; returns False to stop the thread."""
        busy = self._active or self._waiting
        item = self._poll(none=_NOTHING) if busy else self._requests.get()
        while item is not _NOTHING:
            if item is None:
                return False
            self._remove(item) if item.cancelled else self._add(item)
            item = self._poll(none=_NOTHING)
        return not self._closed

    def _poll(self, none: Generation | None = None) -> Generation | None:
        try:
            return self._requests.get_nowait()
        except Empty:
            return none

    def _add(self, generation: Generation) -> None:
        came = next(self._arrivals)
        try:
            for index in range(len(generation.requests)):
                self._wait(
                    Sequence(
                        generation,
                        index,
                        self._vocabulary,
                        self._length,
                        order=came + index,
                        draft_tokens=self._draft_tokens,
                    )
                )
        except Exception as error:  # noqa: BLE001 - fails only this request
            self._fail([one for one in self._waiting if one.generation is generation], error)
            self._report_error(generation, error)

    def _wait(self, sequence: Sequence) -> None:
        bisect.insort(self._waiting, sequence, key=_order)

    def _remove(self, generation: Generation) -> None:
        for sequence in [*self._active, *self._waiting]:
            if sequence.generation is generation:
                self._end(sequence)

    def _step(self) -> None:
        self._admit()
        parts = self._fill()
        # Sent now, so that event loops process events while llama.cpp computes, not while this thread needs the GIL.
        self._event_queue.send()
        if parts:
            self._handle_outcome(parts, self._compute(parts))

    def _admit(self) -> None:
        """Assign idle slots in order; a request whose prefix is being computed by another one is passed over."""
        self._cache_full = self._cache_full and bool(self._active)
        for sequence in list(self._waiting):
            if self._cache_full or not self._slots.free:
                return
            slot = self._slots.take(sequence.tokens, sequence.request.adapter)
            if slot is not None:
                self._waiting.remove(sequence)
                sequence.assign(slot)
                self._active.append(sequence)

    def _fill(self) -> list[Part]:
        while self._suspects and self._suspects[0] not in self._active:
            self._suspects.popleft()
        return self._batch_builder.fill([self._suspects[0]] if self._suspects else self._active)

    def _compute(self, parts: list[Part]) -> int:
        self._context.abort(False)
        self._computing = tuple({part.sequence.generation for part in parts})
        try:
            if self._closed or all(generation.cancelled for generation in self._computing):
                return ABORTED
            began = time.perf_counter()
            outcome = self._context.compute()
            if outcome == COMPUTED:
                self._prefill_budget.learn(
                    sum(part.count + len(part.draft) for part in parts), time.perf_counter() - began
                )
            return outcome
        finally:
            self._computing = ()

    def _handle_outcome(self, parts: list[Part], outcome: int) -> None:
        if outcome == COMPUTED:
            self._sample(parts)
        elif outcome == NO_ROOM:
            self._make_room(parts)
        elif outcome == ABORTED:
            self._resync(parts)
        else:
            self._suspect(parts, outcome)

    def _sample(self, parts: list[Part]) -> None:
        broken: list[Sequence] = []
        for part in parts:
            sequence, slot = part.sequence, part.sequence.slot
            if slot is None:
                continue  # another answer of its request has failed just now
            slot.computed += part.count
            if sequence.generation.cancelled or slot.computed < len(sequence.tokens):
                if part.draft:
                    self._context.cut(slot.id, slot.computed)
                continue
            try:
                self._advance(part)
            except NonFiniteLogits:
                broken.append(sequence)
            except ColdframeError as error:
                self._forget([sequence])
                self._fail([sequence], error)
        if broken:
            self._isolate(broken)
        elif self._suspects and self._suspects[0] is parts[0].sequence and parts[0].sequence.pending == 1:
            self._suspects.popleft()

    def _advance(self, part: Part) -> None:
        sequence, slot, first = part.sequence, part.sequence.slot, part.index - len(part.draft)
        assert slot is not None
        events, over, right = sequence.advance(lambda place: self._context.logits(first + place), part.draft)
        slot.computed += right
        if right < len(part.draft):
            self._context.cut(slot.id, slot.computed)
        if events:
            self._event_queue.add(sequence.generation, events)
        if over:
            self._end(sequence)

    def _make_room(self, parts: list[Part]) -> None:
        """The KV cache is full: drop cached prefixes, else preempt the youngest sequence, which starts over later."""
        if self._slots.drop_idle():
            return
        if len(self._active) == 1:
            self._fail([self._active[0]], ColdframeError("the cache of this model has no room for this request"))
            return
        self._cache_full = True
        youngest = self._active.pop()
        self._forget([youngest])
        assert youngest.slot is not None
        self._slots.release(youngest.slot)
        youngest.slot = None
        self._wait(youngest)

    def _resync(self, parts: list[Part]) -> None:
        """After an aborted batch, read from the KV cache how many tokens of each sequence were computed."""
        for part in parts:
            sequence, slot = part.sequence, part.sequence.slot
            assert slot is not None
            slot.computed = max(0, min(self._context.length(slot.id), len(sequence.tokens) - 1))
            if not self._context.cut(slot.id, slot.computed):
                self._slots.drop(slot)

    def _suspect(self, parts: list[Part], outcome: int) -> None:
        """Computing a batch failed: compute its sequences one by one, and fail the one that fails alone."""
        logger.error("llama.cpp could not compute a batch of %d sequences (code %d)", len(parts), outcome)
        sequences = [part.sequence for part in parts]
        self._forget(sequences)
        if len(parts) > 1:
            self._suspects = deque(sequences)
        else:
            message = f"llama.cpp could not compute this request (code {outcome})"
            self._fail(sequences, ColdframeError(message))

    def _isolate(self, broken: list[Sequence]) -> None:
        """Logits are not finite, and NaNs persist in reused KV cells: clear the cache, recompute sequences one by one.

        A sequence whose logits are not finite when it is computed alone, with a clean cache, fails.
        """
        self._slots.drop_idle()
        self._forget(self._active)
        self._context.wipe()
        if self._suspects and self._suspects[0] is broken[0]:
            message = "the model's computation broke down on this request: its logits are not numbers"
            self._fail(broken, ColdframeError(message))
        else:
            self._suspects = deque(self._active)

    def _forget(self, sequences: Many[Sequence]) -> None:
        for sequence in sequences:
            if sequence.slot is not None:
                self._slots.drop(sequence.slot)

    def _fail(self, sequences: list[Sequence], error: BaseException) -> None:
        """Fail the generations of these sequences with the error."""
        generations = {sequence.generation for sequence in sequences}
        for generation in generations:
            self._remove(generation)
            self._report_error(generation, error)

    def _report_error(self, generation: Generation, error: BaseException) -> None:
        self._event_queue.add(generation, [error])

    def _end(self, sequence: Sequence) -> None:
        if sequence.slot is not None:
            self._active.remove(sequence)
            self._slots.release(sequence.slot)
            sequence.slot = None
        else:
            self._waiting.remove(sequence)
        self._cache_full = False
        sequence.close()


_NOTHING: Generation = object.__new__(Generation)


def _order(sequence: Sequence) -> int:
    return sequence.order
