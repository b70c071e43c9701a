"""Repetition, frequency and presence penalties, applied to logits in place, by llama.cpp's rules.

llama.cpp's own sampler needs all tokens of the vocabulary as candidates first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Penalty:
    """Penalties over the last `window` tokens."""

    def __init__(self, window: int, *, repeat: float = 1.0, frequency: float = 0.0, presence: float = 0.0) -> None:
        self._last: deque[int] = deque(maxlen=window)
        self._counts: Counter[int] = Counter()
        self._repeat = np.float32(repeat)
        self._frequency = np.float32(frequency)
        self._presence = np.float32(presence)

    def accept(self, tokens: Sequence[int]) -> None:
        """Add tokens to the window, the oldest first."""
        for token in tokens:
            if len(self._last) == self._last.maxlen:
                gone = self._last[0]
                self._counts[gone] -= 1
                if not self._counts[gone]:
                    del self._counts[gone]
            self._last.append(token)
            self._counts[token] += 1

    def apply(self, logits: NDArray[np.float32]) -> None:
        """Apply the penalties to the logits in place."""
        count = len(self._counts)
        if not count:
            return
        ids = np.fromiter(self._counts.keys(), np.intp, count)
        times = np.fromiter(self._counts.values(), np.float32, count)
        found = logits[ids]
        found = np.where(found <= 0, found * self._repeat, found / self._repeat)
        logits[ids] = found - (times * self._frequency + self._presence)
