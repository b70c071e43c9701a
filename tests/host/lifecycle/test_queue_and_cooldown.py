"""Tickets and cool-downs by themselves."""

import pytest

from host.errors import LoadFailed, QueueFull
from host.lifecycle.cooldown import Cooldown
from host.lifecycle.queue import Queue

pytestmark = pytest.mark.anyio


async def test_tickets_are_served_in_order():
    queue = Queue(3, "a")
    tickets = [queue.join(0) for _ in range(3)]
    assert len(queue) == 3
    assert queue.serve()
    assert [ticket.done() for ticket in tickets] == [True, False, False]
    queue.leave(tickets[1])
    queue.leave(tickets[1])
    assert queue.serve()
    assert tickets[2].done()
    assert not tickets[1].done()
    assert not queue.serve()


@pytest.mark.parametrize(("size", "room", "fit"), [(0, 0, 0), (0, 1, 1), (2, 0, 2), (2, 3, 5), (2, -4, 2)])
async def test_so_many_may_wait(size, room, fit):
    queue = Queue(size, "a")
    for _ in range(fit):
        queue.join(room)
    with pytest.raises(QueueFull) as caught:
        queue.join(room)
    assert caught.value.extra == {"queue_size": size}
    assert len(queue) == fit


async def test_the_refused_get_an_error_each():
    queue = Queue(3, "a")
    tickets = [queue.join(0) for _ in range(3)]
    queue.refuse(LoadFailed("no", retry_after=3.0))
    errors = [ticket.exception() for ticket in tickets]
    assert len({id(error) for error in errors}) == 3
    assert [(error.message, error.retry_after) for error in errors] == [("no", 3.0)] * 3
    assert len(queue) == 0


async def test_who_has_gone_is_skipped():
    queue = Queue(3, "a")
    gone, here = queue.join(0), queue.join(0)
    gone.cancel()
    assert queue.serve()
    assert here.done()


def test_cool_downs_double_up_to_a_bound_and_success_forgets():
    now = [0.0]
    cooldown = Cooldown(lambda: now[0], first=10, longest=60)
    assert cooldown.left() == 0
    assert [cooldown.fail() for _ in range(5)] == [10, 20, 40, 60, 60]
    now[0] = 20
    assert cooldown.left() == 40
    cooldown.skip()
    assert cooldown.left() == 0
    assert cooldown.fail() == 60
    cooldown.succeed()
    assert (cooldown.left(), cooldown.fail()) == (0, 10)


def test_very_many_failures_stay_at_the_bound():
    cooldown = Cooldown(lambda: 0.0)
    for _ in range(5000):
        last = cooldown.fail()
    assert last == 300
