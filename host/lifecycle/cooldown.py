"""The cool-down after a failed load; it doubles with each failure in a row."""

from __future__ import annotations

from collections.abc import Callable

FIRST = 10.0
LONGEST = 300.0


class Cooldown:
    """Counts failures in a row; `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float], first: float = FIRST, longest: float = LONGEST) -> None:
        self._clock = clock
        self._first = first
        self._longest = longest
        self._failures = 0
        self._until = 0.0

    def fail(self) -> float:
        """Count one failure; returns the seconds of the cool-down that begins."""
        length: float = min(self._first * 2 ** min(self._failures, 32), self._longest)
        self._failures += 1
        self._until = self._clock() + length
        return length

    def succeed(self) -> None:
        """Forget the failures."""
        self._failures = 0
        self._until = 0.0

    def left(self) -> float:
        """Return the seconds left, 0 when there are none."""
        return max(0.0, self._until - self._clock())

    def skip(self) -> None:
        """End the cool-down now; the next failure still counts on."""
        self._until = 0.0
