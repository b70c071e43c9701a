"""Threads that tokenise: as many as the load allows, and what is asked of them while they end."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from functions.decide.tokenizer_pool import CheckCancelled, TokenizerPool
from host.errors import ShuttingDown

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("allowed", "count"), [(0, 1), (1, 1), (2, 2), (16, 4)])
async def test_no_more_threads_than_are_allowed(allowed: int, count: int) -> None:
    threads, names = TokenizerPool(allowed), set()

    def work(_: CheckCancelled) -> None:
        names.add(threading.current_thread().name)
        time.sleep(0.02)

    await asyncio.gather(*(threads.run(work) for _ in range(12)))
    threads.close()
    assert len(names) == count


async def test_work_that_comes_while_the_threads_end_is_told() -> None:
    threads = TokenizerPool(1)
    threads.close()
    threads._closed.clear()  # as `run` saw it just before
    with pytest.raises(ShuttingDown):
        await threads.run(lambda check: None)


async def test_what_work_raises_is_its_own() -> None:
    threads = TokenizerPool(1)

    def broken(_: CheckCancelled) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await threads.run(broken)
    threads.close()


async def test_closing_ends_work_at_its_next_check() -> None:
    threads, began = TokenizerPool(1), threading.Event()

    def work(check: CheckCancelled) -> None:
        while True:
            began.set()
            check()
            time.sleep(0.001)

    asked = [asyncio.create_task(threads.run(work)) for _ in range(3)]
    assert await asyncio.to_thread(began.wait, 5)
    await asyncio.wait_for(asyncio.to_thread(threads.close), 5)
    for task in asked:
        with pytest.raises(ShuttingDown):
            await task
