"""The thread that scores: calls take turns, so that a short one does not wait for all of a long one.

A turn is a round. Where the prefixes of calls push each other out, it is as many as have the tokens of a prefix that
had to be computed first, so that no more than half of the time goes to prefixes.

It knows calls and who waits for them, and nothing of how a round is computed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence

from functions.engines.llama.scoring.branch import Branch, Scores
from functions.engines.llama.scoring.scorer import Aborted, Scorer, ScoringTask
from host.errors import ShuttingDown


class _Call:
    """One call, and its future in the loop of whoever waits."""

    def __init__(self, prefix: Sequence[int], branches: Sequence[Branch]) -> None:
        self.prefix, self.branches = prefix, branches
        self.work: ScoringTask | None = None
        self.gone = False
        """Nobody waits any more."""
        self.future: asyncio.Future[Scores] = asyncio.get_running_loop().create_future()

    def length(self) -> int:
        """Return how many tokens its next round is behind."""
        return len(self.prefix) if self.work is None else self.work.length()

    def settle(self, scores: Scores | None, error: BaseException | None = None) -> None:
        """Wake whoever waits, from any thread; a loop that is gone needs no telling."""

        def tell() -> None:
            if self.future.done():
                return
            if error is not None:
                self.future.set_exception(error)
            elif scores is not None:
                self.future.set_result(scores)

        with contextlib.suppress(RuntimeError):
            self.future.get_loop().call_soon_threadsafe(tell)


class _Gone(Exception):
    """Nobody waits for the call any more, or the thread is to end."""


class Scheduler:
    """`abort` lets the computation that runs stop soon, and `abort(False)` lets the next one run."""

    def __init__(self, scorer: Scorer, abort: Callable[[bool], None]) -> None:
        self._scorer = scorer
        self._abort = abort
        self._changed = threading.Condition()
        self._waiting: deque[_Call] = deque()
        self._running: _Call | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="score", daemon=True)
        self._thread.start()

    async def score(self, prefix: Sequence[int], branches: Sequence[Branch]) -> Scores:
        """Return the scores of the branches. Cancelling ends what is computed for them.

        Raises `ShuttingDown`, `OutOfMemory`, and `ColdframeError` for what cannot be computed.
        """
        call = _Call(prefix, branches)
        with self._changed:
            if self._closed:
                raise ShuttingDown("the model is being unloaded")
            self._waiting.append(call)
            self._changed.notify()
        try:
            return await call.future
        finally:
            with self._changed:
                call.gone = True
                if self._running is call:
                    self._abort(True)
                with contextlib.suppress(ValueError):
                    self._waiting.remove(call)

    def close(self) -> None:
        """Stop, also what is running; calls that wait get `ShuttingDown`."""
        with self._changed:
            self._closed = True
            self._abort(True)
            self._changed.notify()
        self._thread.join()
        with self._changed:
            waiting = list(self._waiting)  # each leaves as soon as it is told, in a thread of its own
        for call in waiting:
            call.settle(None, ShuttingDown("the model is being unloaded"))

    def _work(self) -> None:
        while (call := self._next()) is not None:
            error: BaseException | None = None
            more = False
            try:
                more = self._compute_batches(call)
            except (Aborted, _Gone):
                error = ShuttingDown("the model is being unloaded")
            except Exception as raised:  # noqa: BLE001 - whatever it is, who waits gets it
                error = raised
            with self._changed:
                self._running = None
                if more and not call.gone:
                    self._waiting.append(call)
            if error is not None:
                call.settle(None, error)
            elif not more and call.work is not None:
                call.settle(call.work.scores())

    def _next(self) -> _Call | None:
        with self._changed:
            while not self._closed:
                if self._waiting:
                    self._running = self._waiting.popleft()
                    return self._running
                self._changed.wait()
        return None

    def _compute_batches(self, call: _Call) -> bool:
        """Compute a round of a call, or some where others would push its prefix out; False when none is left."""
        if call.work is None:
            call.work = self._scorer.work(call.prefix, call.branches)
        work = call.work
        while self._scorer.advance(work, lambda: self._guard(call)) and work.unfinished():
            if not (work.owed and self._crowded(call)):
                return True
        return False

    def _crowded(self, call: _Call) -> bool:
        """Say whether what this call and those that wait are behind does not fit into memory together."""
        with self._changed:
            return not self._scorer.holds(sum(one.length() for one in (call, *self._waiting)))

    def _guard(self, call: _Call) -> None:
        with self._changed:
            if call.gone or self._closed:
                raise _Gone
            self._abort(False)
