"""One thread that owns the model: items of all requests go in, batches are computed, results go back in order.

It waits for nothing: a batch is made of what is there when the one before it ends. It knows no model: `compute` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from functions.engines.batching.schedule import Entry, Job, Schedule
from host.errors import ColdframeError, OutOfMemory, QueueFull, ShuttingDown

T = TypeVar("T")
R = TypeVar("R")

WAITING_MAX = 65_536
"""Items that may wait in all; one request of an embeddings client has at most 2,048."""


def _is_memory_error(error: BaseException) -> bool:
    return isinstance(error, MemoryError | OutOfMemory)


class Batcher(Generic[T, R]):
    """Computes items in batches. `compute` gets the items of a batch, longest first, and returns a result for each.

    `size` tells an item's tokens; `budget`, `overhead` and `most` are `Schedule`'s; `start` runs first in the thread.
    `ran_out` tells whether an error means that memory ran out, and `release` gives back what the engine can before that
    is told.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[T]], Sequence[R]],
        size: Callable[[T], int],
        *,
        budget: int,
        overhead: int | None = 0,
        most: int | None = None,
        waiting_max: int = WAITING_MAX,
        start: Callable[[], None] | None = None,
        ran_out: Callable[[BaseException], bool] = _is_memory_error,
        release: Callable[[], None] | None = None,
    ) -> None:
        self._compute = compute
        self._size = size
        self._start = start
        self._waiting_max = waiting_max
        self._schedule: Schedule[T, R] = Schedule(budget, overhead, most)
        self._ran_out = ran_out
        self._release = release
        self._changed = threading.Condition()
        self._closed = False
        self.batches = 0
        """Batches computed so far."""
        self._thread = threading.Thread(target=self._work, name="compute", daemon=True)
        self._thread.start()

    async def run(self, items: Sequence[T]) -> list[R]:
        """Return the items' results in their order. Cancelling drops what is not computed yet.

        Raises what `compute` raised for one of the items, `QueueFull` when too much waits, `ShuttingDown`.
        """
        if not items:
            return []
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job: Job[T, R] = Job(len(items), _teller(future))
        sized = [(item, self._size(item)) for item in items]
        with self._changed:
            if self._closed:
                raise ShuttingDown("the model is being unloaded")
            waiting = len(self._schedule)
            if waiting and waiting + len(items) > self._waiting_max:
                raise QueueFull(f"{waiting} inputs wait for this model already", retry_after=1.0)
            self._schedule.add(job, sized)
            self._changed.notify()
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
            self._changed.notify()
        for job in waiting:
            self._fail(job, ShuttingDown("the model is being unloaded"))
        self._thread.join()

    def _work(self) -> None:
        if self._start is not None:
            self._start()
        while batch := self._next():
            self._attempt(batch)
            self.batches += 1
            # A batch that is kept here until the next one comes would keep its results' memory.
            del batch

    def _next(self) -> list[Entry[T, R]]:
        """Return the next batch, waiting for one; empty when closed."""
        with self._changed:
            while not self._closed:
                if batch := self._schedule.take():
                    return batch
                self._changed.wait()
        return []

    def _attempt(self, batch: list[Entry[T, R]]) -> None:
        """Compute a batch. When it fails it is taken apart until only those fail who must.

        Where memory ran out, by halves; else by requests, since a request of which one item fails fails as a whole.
        """
        try:
            results = self._compute([entry.item for entry in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait get it
            parts = _halves(batch) if self._ran_out(error) else _by_job(batch)
            if len(parts) < 2:
                self._fail(batch[0].job, self._told(error))
                return
        else:
            for entry, result in zip(batch, results, strict=True):
                entry.job.deliver(entry.index, result)
            return
        for part in parts:
            self._attempt(part)

    def _fail(self, job: Job[T, R], error: BaseException) -> None:
        with self._changed:
            self._schedule.drop(job)
        job.done(error)

    def _told(self, error: Exception) -> Exception:
        """Return the error as its caller gets it: out of memory has a name, all else stays what it is."""
        if isinstance(error, ColdframeError) or not self._ran_out(error):
            return error
        if self._release is not None:
            self._release()
        return OutOfMemory("one input alone needs more memory than there is: send a shorter one")


def _teller(future: asyncio.Future[None]) -> Callable[[BaseException | None], None]:
    """Return what settles the future from any thread, once; a loop that is gone needs no telling."""
    loop = future.get_loop()

    def settle(error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def tell(error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, error)

    return tell


def _halves(batch: list[Entry[T, R]]) -> list[list[Entry[T, R]]]:
    middle = (len(batch) + 1) // 2
    return [part for part in (batch[:middle], batch[middle:]) if part]


def _by_job(batch: list[Entry[T, R]]) -> list[list[Entry[T, R]]]:
    parts: dict[int, list[Entry[T, R]]] = {}
    for entry in batch:
        parts.setdefault(id(entry.job), []).append(entry)
    return list(parts.values())
