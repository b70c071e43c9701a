"""The scoring thread: schedules the batches of concurrent calls round robin, so that short calls need not wait.

If calls evict each other's prefixes, a call runs until its work has repaid the prefix: at most half of the time goes to
recomputing prefixes.
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
    """One call, and its future on the caller's event loop."""

    def __init__(self, prefix: Sequence[int], branches: Sequence[Branch]) -> None:
        self.prefix, self.branches = prefix, branches
        self.task: ScoringTask | None = None
        self.cancelled = False
        """The caller was cancelled."""
        self.future: asyncio.Future[Scores] = asyncio.get_running_loop().create_future()

    def length(self) -> int:
        """Return the number of tokens before its next batch."""
        return len(self.prefix) if self.task is None else self.task.length()

    def settle(self, scores: Scores | None, error: BaseException | None = None) -> None:
        """Set the future from any thread; ignored if its event loop is closed."""

        def set_result() -> None:
            if self.future.done():
                return
            if error is not None:
                self.future.set_exception(error)
            elif scores is not None:
                self.future.set_result(scores)

        with contextlib.suppress(RuntimeError):
            self.future.get_loop().call_soon_threadsafe(set_result)


class _Cancelled(Exception):
    """The call was cancelled, or the thread is to end."""


class Scheduler:
    """Runs calls on a thread. `abort(True)` aborts the running computation, `abort(False)` allows the next one."""

    def __init__(self, scorer: Scorer, abort: Callable[[bool], None]) -> None:
        self._scorer = scorer
        self._abort = abort
        self._changed = threading.Condition()
        self._waiting: deque[_Call] = deque()
        self._running: _Call | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="score", daemon=True)
        self._thread.start()

    async def score(self, prefix: Sequence[int], branches: Sequence[Branch]) -> Scores:
        """Return the scores of the branches. Cancelling aborts their computation.

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
                call.cancelled = True
                if self._running is call:
                    self._abort(True)
                with contextlib.suppress(ValueError):
                    self._waiting.remove(call)

    def close(self) -> None:
        """Abort the running computation and stop; waiting calls get `ShuttingDown`."""
        with self._changed:
            self._closed = True
            self._abort(True)
            self._changed.notify()
        self._thread.join()
        with self._changed:
            waiting = list(self._waiting)  # calls remove themselves once they are settled, on their own threads
        for call in waiting:
            call.settle(None, ShuttingDown("the model is being unloaded"))

    def _run(self) -> None:
        while (call := self._next()) is not None:
            error: BaseException | None = None
            more = False
            try:
                more = self._compute_batches(call)
            except (Aborted, _Cancelled):
                error = ShuttingDown("the model is being unloaded")
            except Exception as raised:  # noqa: BLE001 - passed on to the caller
                error = raised
            with self._changed:
                self._running = None
                if more and not call.cancelled:
                    self._waiting.append(call)
            if error is not None:
                call.settle(None, error)
            elif not more and call.task is not None:
                call.settle(call.task.scores())

    def _next(self) -> _Call | None:
        with self._changed:
            while not self._closed:
                if self._waiting:
                    self._running = self._waiting.popleft()
                    return self._running
                self._changed.wait()
        return None

    def _compute_batches(self, call: _Call) -> bool:
        """Compute one batch of a call, more if other calls would evict its prefix; False when none is left."""
        if call.task is None:
            call.task = self._scorer.task(call.prefix, call.branches)
        task = call.task
        while self._scorer.advance(task, lambda: self._guard(call)) and task.unfinished():
            if not (task.prefill_debt and self._crowded(call)):
                return True
        return False

    def _crowded(self, call: _Call) -> bool:
        """Return whether the prefixes of this call and the waiting ones do not fit into the KV cache together."""
        with self._changed:
            return not self._scorer.holds(sum(one.length() for one in (call, *self._waiting)))

    def _guard(self, call: _Call) -> None:
        with self._changed:
            if call.cancelled or self._closed:
                raise _Cancelled
            self._abort(False)
