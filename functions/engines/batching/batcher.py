"""The threads that own the model: items of all requests go in, batches are computed, results go back in order.

It waits for nothing: a batch is made of what is there when the one before it ends. It knows no model: `compute` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from functions.engines.batching.schedule import Job, QueuedItem, Schedule
from host.errors import ColdframeError, NotFinite, OutOfMemory, QueueFull, ShuttingDown

T = TypeVar("T")
R = TypeVar("R")

WAITING_MAX = 65_536
"""Items that may wait in all; one request of an embeddings client has at most 2,048."""


def _default_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError | OutOfMemory)


class Batcher(Generic[T, R]):
    """Computes items in batches. `compute` gets the items of a batch, longest first, and returns a result for each.

    `lanes` are threads that compute side by side, a batch each; `start` runs first in each of them. One more thread
    takes requests of at most `express` tokens past a batch of larger ones that is being computed; `start_express` runs
    first in it, and 0 is for none. Without either, `compute` is called by one thread only.
    `size` tells an item's tokens; `budget`, `overhead`, `padding` and `most` are `Schedule`'s.
    `is_out_of_memory` decides whether an error means that memory ran out; `release` frees what the engine caches before
    `OutOfMemory` is raised.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[T]], Sequence[R]],
        size: Callable[[T], int],
        *,
        budget: int,
        overhead: int | None = 0,
        padding: float = 1.0,
        most: int | None = None,
        lanes: int = 1,
        express: int = 0,
        waiting_max: int = WAITING_MAX,
        start: Callable[[], None] | None = None,
        start_express: Callable[[], None] | None = None,
        is_out_of_memory: Callable[[BaseException], bool] = _default_out_of_memory,
        release: Callable[[], None] | None = None,
    ) -> None:
        self._compute = compute
        self._size = size
        self._express = express
        self._lanes = lanes
        self._idle = 0
        """Lanes that have nothing to do."""
        self._large = 0
        """Lanes that compute items of requests of more than `express` tokens."""
        self._waiting_max = waiting_max
        self._schedule: Schedule[T, R] = Schedule(budget, overhead, most, padding)
        self._is_out_of_memory = is_out_of_memory
        self._release = release
        self._changed = threading.Condition()
        self._closed = False
        self.batches = 0
        """Batches computed so far."""
        roles = [(self._next_batch, start)] * lanes + [(self._next_express, start_express)] * bool(express)
        self._threads = [
            threading.Thread(target=self._run_thread, args=role, name="compute", daemon=True) for role in roles
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, items: Sequence[T]) -> list[R]:
        """Return the items' results in their order. Cancelling drops what is not computed yet.

        Raises what `compute` raised for one of the items, `QueueFull` when too much waits, `ShuttingDown`.
        """
        if not items:
            return []
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job: Job[T, R] = Job(len(items), _completion(future))
        sized = [(item, self._size(item)) for item in items]
        with self._changed:
            if self._closed:
                raise ShuttingDown("the model is being unloaded")
            waiting = len(self._schedule)
            if waiting and waiting + len(items) > self._waiting_max:
                raise QueueFull(f"{waiting} inputs wait for this model already", retry_after=1.0)
            self._schedule.add(job, sized)
            self._changed.notify_all()
        try:
            await future
        finally:
            if job.left:
                with self._changed:
                    self._schedule.drop(job)
        return job.results  # type: ignore[return-value]  # none is None once the future is done

    def close(self) -> None:
        """Stop after the batch that is running; calls that wait get `ShuttingDown`."""
        with self._changed:
            self._closed = True
            waiting = self._schedule.jobs()
            for job in waiting:
                self._schedule.drop(job)
            self._changed.notify_all()
        for job in waiting:
            self._fail(job, ShuttingDown("the model is being unloaded"))
        for thread in self._threads:
            thread.join()

    def _run_thread(self, take: Callable[[], list[QueuedItem[T, R]]], start: Callable[[], None] | None) -> None:
        if start is not None:
            start()
        while batch := take():
            large = any(entry.job.size > self._express for entry in batch)
            with self._changed:
                self._large += large
                if large:
                    self._changed.notify_all()
            self._compute_or_split(batch)
            with self._changed:
                self._large -= large
                self.batches += 1
            # A batch that is kept here until the next one comes would keep its results' memory.
            del batch

    def _next_batch(self) -> list[QueuedItem[T, R]]:
        """Return the next batch, waiting for one; empty when closed."""
        with self._changed:
            self._idle += 1
            try:
                while not self._closed:
                    if batch := self._schedule.take(self._batch_count()):
                        return batch
                    self._changed.wait()
            finally:
                self._idle -= 1
        return []

    def _batch_count(self) -> int:
        """Return in how many batches what waits is to be computed."""
        return 1 if self._lanes == 1 else 2 * self._idle

    def _next_express(self) -> list[QueuedItem[T, R]]:
        """Return a small request as a batch, waiting for one that a larger one holds up; empty when closed."""
        with self._changed:
            while not self._closed:
                if self._large and (batch := self._schedule.take_small(self._express)):
                    return batch
                self._changed.wait()
        return []

    def _compute_or_split(self, batch: list[QueuedItem[T, R]]) -> None:
        """Compute a batch. When it fails it is taken apart until only those fail who must.

        Where memory ran out or an item spoils its numbers, by halves, which finds the item; else by requests, since a
        request of which one item fails fails as a whole.
        """
        try:
            results = self._compute([entry.item for entry in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait get it
            parts = _halves(batch) if self._is_out_of_memory(error) or isinstance(error, NotFinite) else _by_job(batch)
            if len(parts) < 2:
                self._fail(batch[0].job, self._caller_error(error, batch[0]))
                return
        else:
            with self._changed:
                for entry, result in zip(batch, results, strict=True):
                    entry.job.deliver(entry.index, result)
            return
        for part in parts:
            self._compute_or_split(part)

    def _fail(self, job: Job[T, R], error: BaseException) -> None:
        with self._changed:
            self._schedule.drop(job)
        job.done(error)

    def _caller_error(self, error: Exception, entry: QueuedItem[T, R]) -> Exception:
        """Return the error as its caller gets it: out of memory has a name, spoilt numbers the item's index."""
        if isinstance(error, NotFinite):
            error.extra = {"index": entry.index}
        if isinstance(error, ColdframeError) or not self._is_out_of_memory(error):
            return error
        if self._release is not None:
            self._release()
        return OutOfMemory("one input alone needs more memory than there is: send a shorter one")


def _completion(future: asyncio.Future[None]) -> Callable[[BaseException | None], None]:
    """Return what settles the future from any thread, once; a loop that is gone needs no telling."""
    loop = future.get_loop()

    def settle(error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def complete(error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, error)

    return complete


def _halves(batch: list[QueuedItem[T, R]]) -> list[list[QueuedItem[T, R]]]:
    middle = (len(batch) + 1) // 2
    return [part for part in (batch[:middle], batch[middle:]) if part]


def _by_job(batch: list[QueuedItem[T, R]]) -> list[list[QueuedItem[T, R]]]:
    parts: dict[int, list[QueuedItem[T, R]]] = {}
    for entry in batch:
        parts.setdefault(id(entry.job), []).append(entry)
    return list(parts.values())
