"""Chooses the next batch: waiting items of all requests are sorted by length, and a batch is a slice of that list.

Fairness: the oldest request is in at least every second batch, otherwise the request with the fewest tokens left leads.
A large request delays a short one by the running batch at most, and is never starved itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_PART = 256
"""Least tokens of a batch where enough items wait."""


class Job(Generic[T, R]):
    """The items of one request, and their results as they come, in the request's order.

    `done` is called once, from any thread: with None when all results are there, or with what went wrong.
    """

    __slots__ = ("batch", "done", "left", "results", "size", "tokens", "waiting")

    def __init__(self, count: int, done: Callable[[BaseException | None], None]) -> None:
        self.results: list[R | None] = [None] * count
        self.done = done
        self.left = count
        """Results that are not there yet."""
        self.waiting = 0
        """Items not taken yet, and their tokens."""
        self.tokens = 0
        self.size = 0
        """The tokens of all its items."""
        self.batch = -1
        """The number of the batch that last took items of this job; -1 for none."""

    def deliver(self, index: int, result: R) -> None:
        """Keep the result of one item; the last one ends the job."""
        self.results[index] = result
        self.left -= 1
        if self.left == 0:
            self.done(None)


class QueuedItem(Generic[T, R]):
    """One waiting item."""

    __slots__ = ("index", "item", "job", "length")

    def __init__(self, job: Job[T, R], index: int, item: T, length: int) -> None:
        self.job = job
        self.index = index
        self.item = item
        self.length = length


class Schedule(Generic[T, R]):
    """The waiting items. A batch has at most `budget` tokens, padding included, but always one item.

    `overhead` is the cost of starting a batch, in tokens: a batch ends before its padding costs more than that; None
    for engines that do not pad. `padding` is the cost of a padding token relative to a real one, below 1 for engines
    that pad only part of the computation. A batch has at most `most` items.
    """

    def __init__(self, budget: int, overhead: int | None = 0, most: int | None = None, padding: float = 1.0) -> None:
        self._budget = budget
        self._overhead = overhead
        self._padding = padding
        self._now = budget
        self._most = most or budget
        self._entries: list[QueuedItem[T, R]] = []
        self._jobs: dict[Job[T, R], None] = {}
        self._batch = 0

    def __len__(self) -> int:
        return len(self._entries)

    def jobs(self) -> list[Job[T, R]]:
        """Return the jobs with waiting items, oldest first."""
        return list(self._jobs)

    def add(self, job: Job[T, R], items: Sequence[tuple[T, int]]) -> None:
        """Queue the items of a job, each with its length in tokens."""
        self._jobs[job] = None
        job.waiting = len(items)
        job.tokens = job.size = sum(length for _, length in items)
        self._entries.extend(QueuedItem(job, index, item, length) for index, (item, length) in enumerate(items))
        self._entries.sort(key=lambda entry: -entry.length)

    def drop(self, job: Job[T, R]) -> None:
        """Drop the waiting items of a job."""
        if job in self._jobs:
            del self._jobs[job]
            self._entries = [entry for entry in self._entries if entry.job is not job]

    def take(self, parts: int = 1) -> list[QueuedItem[T, R]]:
        """Remove and return the next batch, longest item first; empty when nothing waits.

        The batch is about one of `parts` equal parts of what waits, but at least `_PART` tokens: with parallel lanes,
        smaller batches keep all lanes busy, and one's results are sent while the next is computed.
        """
        if not self._entries:
            return []
        part = -(-sum(job.tokens for job in self._jobs) // parts)
        self._now = self._budget if parts == 1 else min(self._budget, max(part, _PART))
        leader = self._leader()
        begin, end = self._slice(next(at for at, entry in enumerate(self._entries) if entry.job is leader))
        batch = self._entries[begin:end]
        del self._entries[begin:end]
        return self._taken(batch)

    def take_small(self, most: int) -> list[QueuedItem[T, R]]:
        """Remove and return all items of the smallest request, where that has at most so many tokens; else nothing."""
        job = min((job for job in self._jobs if job.size <= most), key=lambda job: job.tokens, default=None)
        if job is None:
            return []
        batch = [entry for entry in self._entries if entry.job is job]
        self._entries = [entry for entry in self._entries if entry.job is not job]
        return self._taken(batch)

    def _taken(self, batch: list[QueuedItem[T, R]]) -> list[QueuedItem[T, R]]:
        self._batch += 1
        for entry in batch:
            job = entry.job
            job.batch = self._batch
            job.tokens -= entry.length
            job.waiting -= 1
            if job.waiting == 0:
                del self._jobs[job]
        return batch

    def _leader(self) -> Job[T, R]:
        oldest = next(iter(self._jobs))
        if oldest.batch != self._batch:
            return oldest
        return min(self._jobs, key=lambda job: job.tokens)

    def _slice(self, position: int) -> tuple[int, int]:
        """Return the bounds of the batch around the entry at `position`: shorter ones first, then longer ones."""
        entries = self._entries
        begin, end = position, position + 1
        longest = total = entries[position].length
        while end < len(entries) and self._fits(end - begin + 1, longest, total + entries[end].length):
            total += entries[end].length
            end += 1
        while begin > 0 and self._fits(end - begin + 1, entries[begin - 1].length, total + entries[begin - 1].length):
            begin -= 1
            longest = entries[begin].length
            total += longest
        return begin, end

    def _fits(self, count: int, longest: int, total: int) -> bool:
        """Return whether `count` items may form a batch; `total` is the sum of their tokens."""
        if count > self._most:
            return False
        if self._overhead is None:
            return total <= self._now
        padding = (count * longest - total) * self._padding
        return total + padding <= self._now and padding <= self._overhead
