"""A single thread beside the event loop and the compute thread, for tokenizing and decoding images."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from host.errors import ShuttingDown

T = TypeVar("T")


class SideThread:
    """Runs one piece of blocking work after the other."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._closed = False

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Return what `work(*args)` returns; raises what it raises, and `ShuttingDown` once `close` was called."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)
        except RuntimeError:
            if not self._closed:
                raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise  # the caller was cancelled, not the work that `close` took off the queue
        raise ShuttingDown("the model is being unloaded")

    def close(self) -> None:
        """Drop queued work and end the thread after the work in progress; does not wait for it."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)
