"""A worker at its socket, and the calls in it. The worker runs on this very loop; what would end it is caught."""

import asyncio
import os
import socket

import msgspec
import pytest
from coldframe_echo.api import Echo, EchoOnce

from host import wire
from host.errors import ColdframeError, LoadFailed
from host.function import Instance, Load, Plan
from host.manifest import Manifest
from host.wire import Call, Cancel, Connection, Failed, News, Planned, Proceed, Ready, Start, Stop, ToHost, encoder
from host.worker.calls import Calls
from host.worker.main import WireOutlet, Worker, find

pytestmark = pytest.mark.anyio
REQUESTS = {"echo": "coldframe_echo.api:Echo", "echo_once": "coldframe_echo.api:EchoOnce"}


class Peer:
    """The host's end: what was said, and a way to say something."""

    def __init__(self, worker):
        self.heard = []
        self.lost = asyncio.Event()
        self.wire = Connection(ToHost, self.heard.append, self.lost.set)
        self.worker = worker

    async def hear(self, kind, count=1):
        async with asyncio.timeout(60):
            while len([message for message in self.heard if type(message) is kind]) < count:
                await asyncio.sleep(0.002)
        return [message for message in self.heard if type(message) is kind][-1]


@pytest.fixture
async def peer(monkeypatch):
    ours, theirs = socket.socketpair()
    serving = asyncio.ensure_future(Worker(theirs).serve())
    made = Peer(serving)
    await asyncio.get_running_loop().create_connection(lambda: made.wire, sock=ours)
    yield made
    made.wire.send(Stop())
    await asyncio.wait({serving}, timeout=3)
    made.wire.close()


def start(**options):
    manifest = Manifest(task="echo", model="m", name="a", options=options)
    load = Load(manifest=manifest, path=__file__, engine="echo", options=msgspec.Raw(msgspec.msgpack.encode(options)))
    return Start("coldframe_echo.instance:EchoInstance", REQUESTS, load)


async def ready(peer, **options):
    peer.wire.send(start(**options))
    await peer.hear(Planned)
    peer.wire.send(Proceed())
    return (await peer.hear(Ready)).facts


def call(id_, request):
    return Call(id_, "echo" if isinstance(request, Echo) else "echo_once", msgspec.Raw(encoder.encode(request)))


async def test_plan_load_call_stop(peer):
    peer.wire.send(start(plan_bytes=7))
    assert (await peer.hear(Planned)).plan.bytes == {"ram": 7}
    await asyncio.sleep(0.02)
    assert not [message for message in peer.heard if isinstance(message, Ready)]  # not before it may
    peer.wire.send(Proceed())
    assert (await peer.hear(Ready)).facts.capacity == 4
    peer.wire.send(call(5, EchoOnce(text="hello")))
    news = await peer.hear(News)
    assert [(id_, msgspec.msgpack.decode(body)["text"]) for id_, body in news.answers] == [(5, "hello")]
    assert news.ended == [5]
    peer.wire.send(Stop())
    assert await peer.worker == 0
    await asyncio.wait_for(peer.lost.wait(), 60)


async def test_the_news_of_one_step_travel_in_one_frame(peer):
    await ready(peer)
    for n in range(4):
        peer.wire.send(call(n, EchoOnce(text=str(n))))
    await peer.hear(News)
    await asyncio.sleep(0.05)
    news = [message for message in peer.heard if isinstance(message, News)]
    assert sorted(id_ for message in news for id_ in message.ended) == [0, 1, 2, 3]
    assert len(news) < 4


async def test_a_call_as_a_whole_is_one_frame(peer):
    await ready(peer)
    peer.wire.send(msgspec.structs.replace(call(7, Echo(text="1 2 3", delay=0.02)), whole=True))
    news = await peer.hear(News)
    assert (news.answers, news.ended, news.errors) == ([], [], [])
    ((id_, seconds, bodies),) = news.whole
    assert (id_, len(bodies)) == (7, 4)
    assert 0.02 <= seconds < 10
    peer.wire.send(msgspec.structs.replace(call(8, Echo(text="1 2", error="queue_full", error_after=1)), whole=True))
    failed = await peer.hear(News, 2)
    assert (failed.whole, [(id_, body.code) for id_, body in failed.errors]) == ([], [(8, "queue_full")])


async def test_a_cancelled_call_is_not_spoken_of_again(peer):
    await ready(peer)
    peer.wire.send(call(1, Echo(text="x", hang=True)))
    await peer.hear(News)
    peer.wire.send(Cancel(1))
    peer.wire.send(Cancel(99))
    peer.wire.send(call(2, EchoOnce(report=True)))
    await peer.hear(News, 2)
    news = [message for message in peer.heard if isinstance(message, News)]
    assert not [id_ for message in news for id_ in message.ended if id_ == 1]
    assert msgspec.msgpack.decode(news[-1].answers[0][1])["report"]["cancelled"] == 1


@pytest.mark.parametrize(
    ("options", "message"), [({"plan_fails": "no plan"}, "no plan"), ({"load_fails": "no load"}, "no load")]
)
async def test_failures_are_told(peer, options, message):
    peer.wire.send(start(**options))
    peer.wire.send(Proceed())
    failed = await peer.hear(Failed)
    assert (failed.error.code, failed.error.message) == ("load_failed", message)


async def test_what_cannot_be_imported_is_told_without_details(peer):
    peer.wire.send(Start("no.such.module:X", {}, start().load))
    failed = await peer.hear(Failed)
    assert failed.error.code == "load_failed"
    assert "no module named" in failed.error.message.lower()


async def test_a_bug_in_a_load_is_told_without_details(peer, monkeypatch):
    from coldframe_echo.instance import EchoInstance

    monkeypatch.setattr(EchoInstance, "plan", classmethod(lambda *_: 1 / 0))
    peer.wire.send(start())
    failed = await peer.hear(Failed)
    assert "ZeroDivisionError" in failed.error.message
    assert "division by zero" not in failed.error.message


async def test_memory_that_ran_out_in_a_load_is_told_as_that(peer, monkeypatch):
    from coldframe_echo.instance import EchoInstance

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(EchoInstance, "load", classmethod(fail))
    peer.wire.send(start())
    peer.wire.send(Proceed())
    assert (await peer.hear(Failed)).error.code == "out_of_memory"


async def test_a_worker_whose_host_is_gone_ends_at_once(peer, monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    await ready(peer)
    peer.wire.close()
    async with asyncio.timeout(60):
        while not ended:
            await asyncio.sleep(0.005)
    assert ended == [0]


# ------------------------------------------------------------------------------------------------ calls and outbox


class Sayer(Instance):
    """Answers as the test says."""

    def __init__(self, given):
        self.given = given

    @classmethod
    def plan(cls, load):
        return Plan(bytes={})

    @classmethod
    def load(cls, load, plan, progress):
        raise LoadFailed("never")

    def answer(self, request):
        return self.given(request)


class Told:
    def __init__(self):
        self.news = []

    def answer(self, call, answer):
        self.news.append((call, answer))

    def flush(self):
        pass

    def end(self, call):
        self.news.append((call, "end"))

    def fail(self, call, error):
        self.news.append((call, error.code))


async def run(given, request=None):
    told = Told()
    calls = Calls(Sayer(given), told)
    calls.start(1, request)
    await over(calls)
    await calls.close()
    return told.news


async def over(calls):
    """Wait until every call has ended by itself."""
    async with asyncio.timeout(60):
        while calls._tasks:
            await asyncio.sleep(0)


async def test_awaitables_and_iterators_are_answers():
    async def once(request):
        return request

    async def many(request):
        for n in range(3):
            yield n

    assert await run(once, "a") == [(1, "a"), (1, "end")]
    assert await run(many) == [(1, 0), (1, 1), (1, 2), (1, "end")]


async def test_an_answer_that_raises_before_it_begins_fails_the_call():
    def raises(request):
        raise ValueError("secret")

    assert await run(raises) == [(1, "server_error")]


async def test_a_generator_is_closed_before_its_end_or_error_is_told():
    order = []

    async def stream(request):
        try:
            yield 1
            raise ColdframeError("no")
        finally:
            order.append("closed")

    class Order(Told):
        def fail(self, call, error):
            order.append("told")

    calls = Calls(Sayer(stream), Order())
    calls.start(1, None)
    await over(calls)
    assert order == ["closed", "told"]


async def test_large_answers_are_split_over_frames_and_too_large_ones_fail_alone(monkeypatch):
    import host.worker.main as main

    monkeypatch.setattr(main, "FRAME_MAX", 1000)
    sent = []
    outbox = WireOutlet(type("Wire", (), {"send": staticmethod(sent.append)}))
    for n in range(4):
        outbox.answer(n, "x" * 300)
    with pytest.raises(wire.FrameTooLong):
        outbox.answer(9, "x" * 600)
    await asyncio.sleep(0.01)
    assert [[id_ for id_, _ in news.answers] for news in sent] == [[0], [1], [2], [3]]
    assert max(len(wire.pack(news)) for news in sent) < 1000


@pytest.mark.parametrize("reference", ["no.such:X", "json:NoSuchName"])
def test_what_is_not_there_cannot_be_found(reference):
    with pytest.raises((LoadFailed, AttributeError)):
        find(reference)
