"""The thread that tokenizes: what its callers get while it is closed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from functions.engines.batching.side_thread import SideThread
from host.errors import ShuttingDown

pytestmark = pytest.mark.anyio


async def test_results_and_errors_are_those_of_the_work() -> None:
    thread = SideThread("test")
    assert await thread.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await thread.run(divmod, 1, 0)
    with pytest.raises(RuntimeError, match="its own"):
        await thread.run(_fail)
    thread.close()


async def test_queued_and_later_work_is_refused_after_close() -> None:
    thread, release = SideThread("test"), threading.Event()
    running = asyncio.create_task(thread.run(release.wait))
    queued = asyncio.create_task(thread.run(int))
    await asyncio.sleep(0)
    thread.close()
    with pytest.raises(ShuttingDown):
        await queued
    with pytest.raises(ShuttingDown):
        await thread.run(int)
    release.set()
    assert await running is True, "work in progress ends well"


async def test_a_caller_that_is_cancelled_stays_cancelled() -> None:
    thread, release = SideThread("test"), threading.Event()
    running = asyncio.create_task(thread.run(release.wait))
    queued = asyncio.create_task(thread.run(int))
    await asyncio.sleep(0)
    queued.cancel()
    thread.close()
    with pytest.raises(asyncio.CancelledError):
        await queued
    release.set()
    await running


def _fail() -> None:
    raise RuntimeError("its own")
