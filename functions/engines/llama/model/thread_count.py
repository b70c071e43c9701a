"""How many threads compute a step: measured while serving, and measured again when steps become slower.

Threads meet at a barrier after every node of a graph. On idle cores more of them are faster; where another process has
taken a core, the others wait for the one it displaced, and fewer are. Nothing but the time of real steps shows which.
"""

from __future__ import annotations

import math
from collections.abc import Generator

TRIAL = 6
"""Steps of each count in a trial: this many before, with the other count, and after."""
_GAIN = 0.97
"""The share of the time that another count must not exceed to be taken."""
_SLOWER = 1.25
"""A step this much slower than usual, on average, begins a trial."""
_SOON, _LATE = 16, 1024
"""Steps until the next trial: after a change, and at most; it doubles with every trial that changes nothing."""
_SETTLED = 3
"""Trials in a row that changed nothing, after which all threads are used without more trials until steps are slower.

Attention over a long cache adds up in another order with another count, so trials cost repeatable answers, too."""


class ThreadCount:
    """The number of threads for each size of step, sizes in powers of two: small steps gain less from threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sizes: dict[int, _Search] = {}

    def of(self, tokens: int) -> int:
        """Return the number of threads for a step of so many tokens."""
        if self._most == 1:
            return 1
        return self._search(tokens).count

    def record(self, tokens: int, seconds: float) -> None:
        """Record the time of a step that was computed with `of(tokens)` threads."""
        if self._most > 1:
            self._search(tokens).record(seconds / tokens)

    def _search(self, tokens: int) -> _Search:
        size = tokens.bit_length()
        found = self._sizes.get(size)
        if found is None:
            found = self._sizes[size] = _Search(self._most)
        return found


class _Search:
    """The search for the best count at one size of step: trials of a neighbouring count between others."""

    def __init__(self, most: int) -> None:
        self.count = most
        """Threads of the next step."""
        self._best = most
        self._most = most
        self._down = True
        self._wait = _SOON
        self._steps = 0
        self._fruitless = 0
        self._usual: float | None = None
        self._recent = 0.0
        self._trial: Generator[None, float, None] | None = None

    def record(self, time: float) -> None:
        """Record a step's time per token, and set the count of the next."""
        if self._trial is None:
            self._watch(time)
            self._steps += 1
            if self._steps >= self._wait and not self._settled:
                self._steps = 0
                self._trial = self._run()
                next(self._trial)
            return
        try:
            self._trial.send(time)
        except StopIteration:
            self._trial = None

    @property
    def _settled(self) -> bool:
        return self._best == self._most and self._fruitless >= _SETTLED

    def _watch(self, time: float) -> None:
        """Begin a trial at once when steps have become slower."""
        if self._usual is None:
            self._usual = self._recent = time
        self._recent += (min(time, 4 * self._usual) - self._recent) / 4
        if self._recent > _SLOWER * self._usual:
            self._usual = self._recent
            self._wait, self._fruitless, self._down = 0, 0, True
        self._usual += (time - self._usual) / 64

    def _run(self) -> Generator[None, float, None]:
        """Try the next count; each step's time is sent in."""
        other = self._other()
        before = yield from self._measure(self._best)
        tried = yield from self._measure(other, at_most=before)
        after = yield from self._measure(self._best)
        if tried < _GAIN * min(before, after):
            self._best, self._wait, self._fruitless = other, _SOON, 0
            self._usual = self._recent = tried
        else:
            self._down = not self._down
            self._fruitless += 1
            self._wait = min(max(_SOON, 2 * self._wait), _LATE)
        self.count = self._best

    def _measure(self, count: int, at_most: float = math.inf) -> Generator[None, float, float]:
        """Return the mean time of a few steps with so many threads, without the slowest; fewer where it is hopeless."""
        self.count = count
        times: list[float] = []
        while len(times) < TRIAL and sum(time > 1.5 * at_most for time in times) < 2:
            times.append((yield))
        return (sum(times) - max(times)) / (len(times) - 1)

    def _other(self) -> int:
        """Return the count to try: fewer or more in turns, a quarter where there are many."""
        stride = max(1, self._best // 4)
        down, up = max(1, self._best - stride), min(self._most, self._best + stride)
        if self._best == 1:
            return up
        if self._best == self._most:
            return down
        return down if self._down else up
