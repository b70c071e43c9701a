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
"""Steps this much slower than usual begin a trial."""
_HOPELESS = 1.4
"""Two steps this much slower than before end a trial."""
_SOON, _LATE = 16, 1024
"""Steps until the next trial: after a change, and at most; it doubles with every trial that changes nothing."""
_LARGE = 64
"""Tokens of a step from which on it is not measured: chunks of prompts differ, and a trial of them is slow."""
_ELSEWHERE = 16
"""Steps of other sizes in a row that end a trial."""

_Trial = Generator[None, float, None]


class ThreadCount:
    """The number of threads of every step, from trials of a neighbouring count.

    Only steps of one size are compared; what holds for small steps is used for large ones. While all threads are in use
    there is one trial, and another when steps slow down: attention over a long cache adds up in another order with
    another count, so trials have their price in repeatable answers, too.
    """

    def __init__(self, most: int) -> None:
        self._most = self._best = self._count = most
        self._usual: dict[int, float] = {}
        """Seconds of a step, by its tokens."""
        self._pace = 1.0
        """Times of the last steps as a share of the usual."""
        self._trial: _Trial | None = None
        self._size = 0
        """Tokens of the steps that the trial compares."""
        self._elsewhere = 0
        self._down = True
        self._wait: float = _SOON
        self._steps = 0

    def of(self, tokens: int) -> int:
        """Return the number of threads for a step of so many tokens."""
        return self._count if self._trial is None or tokens == self._size else self._best

    def record(self, tokens: int, seconds: float) -> None:
        """Record the time of a step that was computed with `of(tokens)` threads."""
        if self._most == 1 or tokens >= _LARGE:
            return
        if self._trial is None:
            self._watch(tokens, seconds)
        elif tokens == self._size:
            self._elsewhere = 0
            self._advance(seconds)
        else:
            self._elsewhere += 1
            if self._elsewhere > _ELSEWHERE:
                self._end()

    def _watch(self, tokens: int, seconds: float) -> None:
        """Begin a trial when its time has come, or as soon as steps have become slower."""
        usual = self._usual.setdefault(tokens, seconds)
        self._usual[tokens] += (seconds - usual) / 16
        self._pace += (min(seconds / usual, 4.0) - self._pace) / 4
        self._steps += 1
        slower = self._pace > _SLOWER and self._steps > _SOON
        if slower or self._steps >= self._wait:
            self._down = self._down or slower
            self._size, self._elsewhere = tokens, 0
            self._trial = self._run()
            next(self._trial)

    def _advance(self, seconds: float) -> None:
        assert self._trial is not None
        try:
            self._trial.send(seconds)
        except StopIteration:
            self._end()

    def _end(self) -> None:
        self._trial = None
        self._count, self._steps, self._pace = self._best, 0, 1.0

    def _run(self) -> _Trial:
        """Try the next count; each step's time is sent in."""
        other = self._other()
        before = yield from self._measure(self._best)
        tried = yield from self._measure(other, at_most=before)
        after = yield from self._measure(self._best)
        if tried < _GAIN * min(before, after):
            self._best, self._wait = other, _SOON
            self._usual = {self._size: tried}
            return
        self._usual[self._size] = min(before, after)
        self._down = not self._down
        self._wait = math.inf if self._best == self._most else min(2 * self._wait, _LATE)

    def _measure(self, count: int, at_most: float = math.inf) -> Generator[None, float, float]:
        """Return the mean time of a few steps with so many threads, without the slowest; fewer where it is hopeless."""
        self._count = count
        times: list[float] = []
        while len(times) < TRIAL and sum(time > _HOPELESS * at_most for time in times) < 2:
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
