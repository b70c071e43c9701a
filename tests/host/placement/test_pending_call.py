"""One call's answers between who makes and who takes them."""

import asyncio

import pytest

from host.errors import QueueFull
from host.placement.pending_call import END, PendingCall

pytestmark = pytest.mark.anyio


def exchange():
    cancelled = []
    return PendingCall(lambda: cancelled.append(1)), cancelled


async def test_answers_come_in_order_and_then_the_end_for_ever():
    made, _ = exchange()
    for n in range(3):
        made.push(n)
    made.end()
    assert [await made.next() for _ in range(3)] == [0, 1, 2]
    assert await made.next() is END
    assert await made.next() is END


async def test_a_taker_that_waits_is_woken():
    made, _ = exchange()
    taking = asyncio.ensure_future(made.next())
    await asyncio.sleep(0)
    made.push("a")
    made.push("b")
    assert await taking == "a"
    assert await made.next() == "b"


async def test_an_error_comes_after_the_answers_before_it():
    made, _ = exchange()
    made.push("a")
    made.fail(QueueFull("no"))
    made.fail(QueueFull("another"))
    made.push("late")
    assert await made.next() == "a"
    for _ in range(2):
        with pytest.raises(QueueFull, match="no"):
            await made.next()


async def test_cancelling_is_told_once_and_never_after_the_end():
    made, cancelled = exchange()
    made.cancel()
    made.cancel()
    made.push("late")
    assert (cancelled, made.over) == ([1], True)
    ended, cancelled = exchange()
    ended.end()
    ended.cancel()
    assert cancelled == []


async def test_a_taker_that_is_cancelled_loses_no_answer():
    made, _ = exchange()
    taking = asyncio.ensure_future(made.next())
    await asyncio.sleep(0)
    made.push("a")
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    assert await made.next() == "a"


async def test_falsy_answers_are_answers():
    made, _ = exchange()
    for answer in (None, 0, ""):
        made.push(answer)
    assert [await made.next() for _ in range(3)] == [None, 0, ""]
