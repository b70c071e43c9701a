"""How many prompt tokens go into a step, and from which prompts; learned from the measured time per token."""

from __future__ import annotations

from collections.abc import Sequence

BURST = 0.5
"""Maximum seconds of prefill in one step: short prompts that arrive together are computed together."""
STEADY = 0.02
"""Maximum seconds of it for long prompts while other sequences generate: their gaps grow by no more."""
LONG = 0.1
"""Seconds from which on a prompt is long. Shorter ones are computed at once, so that their answers begin soon."""
_MIN_TOKENS = 8
_UNKNOWN = 1 / 512
"""Seconds per token until measured."""
_ENOUGH = 12
"""Minimum tokens of a step whose time is measured: those beside generating sequences over a long cache as well."""
_SHARE = 4
"""The oldest prompt gets at least a quarter of the tokens, however many shorter ones are queued."""


class PrefillBudget:
    """Prompt tokens per step, from a moving average of the time per token."""

    def __init__(self, batch: int, chunk: int | None = None) -> None:
        self._batch = batch
        self._chunk = chunk
        self._cost = _UNKNOWN
        self._known = False

    def learn(self, tokens: int, seconds: float) -> None:
        """Record the time of a step."""
        if tokens < _ENOUGH:
            return
        cost = seconds / tokens
        self._cost = cost if not self._known else 0.7 * self._cost + 0.3 * cost
        self._known = True

    @property
    def burst(self) -> int:
        """Maximum prompt tokens of one step."""
        return max(self.steady, min(self._batch, self._tokens(BURST)))

    @property
    def steady(self) -> int:
        """Maximum tokens of prompts that go on after the step, while other sequences generate."""
        return min(self._batch, self._chunk or self._tokens(STEADY))

    @property
    def long(self) -> int:
        """Tokens of the longest prompt that is computed at once beside sequences that generate."""
        return max(self.steady, min(self._batch, self._tokens(LONG)))

    def _tokens(self, seconds: float) -> int:
        # In steps of a quarter more, so that chunks keep their size while the measure wavers.
        wanted, found = seconds / self._cost, _MIN_TOKENS
        while found * 5 // 4 <= wanted and found < self._batch:
            found = found * 5 // 4
        return found


def share(pending: Sequence[int], room: int, budget: PrefillBudget, *, beside: bool) -> list[int]:
    """Return how many tokens of each prompt go into this step, in all `room` at most.

    `pending` are the tokens left of each, the oldest first; `beside` is set while other sequences generate, which
    long prompts must not stall. The oldest gets its share first, then the shortest: their answers begin soonest.
    """
    burst = min(room, budget.burst)
    shares = [0] * len(pending)
    if not pending or burst <= 0:
        return shares
    slow = min(burst, budget.steady) if beside else burst
    order = sorted(range(len(pending)), key=lambda index: (pending[index], index))
    first = 0
    quarter = -(-slow // _SHARE)
    if pending[0] > quarter:
        first = quarter
    shares[0] = first
    left, slow = burst - first, slow - first
    for index in order:
        wanted = pending[index] - shares[index]
        given = min(wanted, left)
        if given < wanted or pending[index] > budget.long:
            given = min(given, max(0, slow))  # it goes on after this step: no more than keeps answers steady
        shares[index] += given
        left -= given
        slow -= given
    return shares
