"""Threads that tokenise: their work ends soon when nobody waits for it any more, and never outlives the model.

They know callables, and nothing of what these do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from host.errors import ShuttingDown

T = TypeVar("T")
Check = Callable[[], None]
"""Raises where nobody waits any more; long work calls it now and then."""
_MOST = 4
"""Threads of a model, however many its load allows: tokenising is short beside computing."""


class _Gone(Exception):
    """Nobody waits any more."""


class Threads:
    """Some threads, of one model."""

    def __init__(self, allowed: int) -> None:
        """`allowed` is how many threads the model may have."""
        self._threads = ThreadPoolExecutor(min(_MOST, max(1, allowed)), thread_name_prefix="ask")
        self._closed = threading.Event()

    async def run(self, work: Callable[[Check], T]) -> T:
        """Return what the work returns; raises what it raises, and `ShuttingDown`."""
        left = threading.Event()

        def check() -> None:
            if left.is_set() or self._closed.is_set():
                raise _Gone

        def checked() -> T:
            check()
            return work(check)

        try:
            working = asyncio.get_running_loop().run_in_executor(self._threads, checked)
        except RuntimeError:  # the threads were shut down
            raise ShuttingDown("the model is being unloaded") from None
        try:
            return await working
        except _Gone:
            raise ShuttingDown("the model is being unloaded") from None
        finally:
            left.set()

    def close(self) -> None:
        """End the threads: what is asked of a model that is freed would end the process."""
        self._closed.set()
        self._threads.shutdown()
