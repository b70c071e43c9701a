"""Threads for tokenising. Work stops soon after its request is cancelled, and ends before the model is freed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from host.errors import ShuttingDown

T = TypeVar("T")
CheckCancelled = Callable[[], None]
"""Raises where the request was cancelled; long work calls it now and then."""
_THREADS_MAX = 4
"""Threads of a model, however many its load allows: tokenising takes little time beside computing."""


class _Cancelled(Exception):
    """The request was cancelled, or the pool was closed."""


class TokenizerPool:
    """The tokenising threads of one model."""

    def __init__(self, threads: int) -> None:
        """`threads` is how many the model may have."""
        self._threads = ThreadPoolExecutor(min(_THREADS_MAX, max(1, threads)), thread_name_prefix="tokenize")
        self._closed = threading.Event()

    async def run(self, work: Callable[[CheckCancelled], T]) -> T:
        """Run work in a thread and return its result; raises its error, or `ShuttingDown` after `close`."""
        cancelled = threading.Event()

        def check() -> None:
            if cancelled.is_set() or self._closed.is_set():
                raise _Cancelled

        def checked() -> T:
            check()
            return work(check)

        try:
            running = asyncio.get_running_loop().run_in_executor(self._threads, checked)
        except RuntimeError:  # the threads were shut down
            raise ShuttingDown("the model is being unloaded") from None
        try:
            return await running
        except _Cancelled:
            raise ShuttingDown("the model is being unloaded") from None
        finally:
            cancelled.set()

    def close(self) -> None:
        """Wait for the threads to end: using a model after it was freed would crash the process."""
        self._closed.set()
        self._threads.shutdown()
