"""Runs the compute threads: items of all requests go in, batches are computed, results return in request order.

Batching is continuous: the next batch is made of what waits when the previous one ends, without a delay to fill it."""

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
"""Most items that may wait in total; one request of an embeddings client has at most 2,048."""


def _default_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError | OutOfMemory)


class Batcher(Generic[T, R]):
    """Computes items in batches. `compute` gets the items of a batch, longest first, and returns a result for each.

    `lanes` is the number of threads that compute batches in parallel; each runs `start` first. With `express` above 0,
    one more thread computes requests of at most that many tokens while a lane is busy with a larger batch; it runs
    `start_express` first. With one lane and no express thread, `compute` is called by a single thread.
    `size` returns an item's tokens; `budget`, `overhead`, `padding` and `most` are those of `Schedule`.
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
        """Lanes that wait for a batch."""
        self._large = 0
        """Lanes that compute a batch with items of requests above `express` tokens."""
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
        """Return the items' results in their order. Cancelling drops the items that are not computed yet.

        Raises what `compute` raised for one of the items, `QueueFull` above `waiting_max` items, and `ShuttingDown`.
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
        """Stop after the running batch; waiting calls raise `ShuttingDown`."""
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
            # A reference kept until the next batch comes would keep the memory of the results.
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
        """Return the number of batches to split the waiting items into."""
        return 1 if self._lanes == 1 else 2 * self._idle

    def _next_express(self) -> list[QueuedItem[T, R]]:
        """Return a small request as a batch, once one waits behind a larger one; empty when closed."""
        with self._changed:
            while not self._closed:
                if self._large and (batch := self._schedule.take_small(self._express)):
                    return batch
                self._changed.wait()
        return []

    def _compute_or_split(self, batch: list[QueuedItem[T, R]]) -> None:
        """Compute a batch. On failure, bisect so that only offending requests fail.

        Out of memory and non-finite results are bisected by items, which finds the item; other errors by requests,
        since a request fails as a whole when one of its items does.
        """
        try:
            results = self._compute([entry.item for entry in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, the waiting requests get it
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
        """Return the error to raise to the caller: `OutOfMemory` by name, `NotFinite` with the item's index."""
        if isinstance(error, NotFinite):
            error.extra = {"index": entry.index}
        if isinstance(error, ColdframeError) or not self._is_out_of_memory(error):
            return error
        if self._release is not None:
            self._release()
        return OutOfMemory("one input alone needs more memory than is available: send a shorter one")


def _completion(future: asyncio.Future[None]) -> Callable[[BaseException | None], None]:
    """Return a callback that completes the future from any thread, once; a closed loop is ignored."""
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
