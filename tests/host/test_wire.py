"""Frames and the bytes they come in: cut anywhere, several at once, too long, broken, very many, very large."""

import asyncio
import socket
import struct
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host import wire
from host.errors import ErrorBody
from host.function import InstanceInfo, Load, Plan
from host.manifest import Manifest
from host.wire import (
    Call,
    Cancel,
    Connection,
    Failed,
    FrameTooLong,
    News,
    Planned,
    Proceed,
    Progressed,
    Ready,
    Start,
    Stop,
    ToHost,
    ToWorker,
    pack,
)

pytestmark = pytest.mark.anyio
RAW = msgspec.Raw(msgspec.msgpack.encode({"text": "hé", "n": [1, 2.5, None]}))
LOAD = Load(manifest=Manifest(task="echo", model="m", name="a", options={"x": 1}), path="/m", engine="echo", threads=3)
MESSAGES = [
    (ToWorker, Start("m:C", {"echo": "m:Echo"}, LOAD)),
    (ToWorker, Proceed()),
    (ToWorker, Call(7, "echo", RAW)),
    (ToWorker, Cancel(7)),
    (ToWorker, Stop()),
    (ToHost, Planned(Plan(bytes={"ram": 1 << 40}, detail={"weights": 1, "x": "y"}, pools={"cuda:0": 5}))),
    (ToHost, Progressed("weights", 1, 1 << 40)),
    (ToHost, Ready(InstanceInfo(capacity=3, detail={"a": [1]}))),
    (ToHost, Failed(ErrorBody(code="load_failed", message="no", extra={"n": 1}))),
    (ToHost, News([(1, RAW), (2, RAW)], [1], [(3, ErrorBody(code="x", message="y"))])),
]
IDS = [type(message).__name__ for _, message in MESSAGES]


class Ear:
    """A connection that was never on a wire: bytes in, messages out."""

    def __init__(self, type_):
        self.heard, self.lost = [], 0
        self.connection = Connection(type_, self.heard.append, self._lose)
        self.transport = Transport(self.connection)
        self.connection.connection_made(self.transport)

    def _lose(self):
        self.lost += 1


class Transport(asyncio.Transport):
    def __init__(self, protocol):
        super().__init__()
        self.protocol, self.closing, self.written = protocol, False, b""

    def is_closing(self):
        return self.closing

    def write(self, data):
        self.written += data

    def close(self):
        self.closing = True


@pytest.mark.parametrize(("type_", "message"), MESSAGES, ids=IDS)
def test_every_message_survives(type_, message):
    ear = Ear(type_)
    ear.connection.data_received(pack(message))
    assert encoded(ear.heard) == encoded([message])
    assert type(ear.heard[0]) is type(message)


@pytest.mark.parametrize("type_", [ToWorker, ToHost], ids=["to worker", "to host"])
def test_frames_may_be_cut_at_every_byte(type_):
    messages = [message for kind, message in MESSAGES if kind is type_]
    data = b"".join(pack(message) for message in messages)
    for cut in range(len(data) + 1):
        ear = Ear(type_)
        ear.connection.data_received(data[:cut])
        ear.connection.data_received(data[cut:])
        assert encoded(ear.heard) == encoded(messages), cut


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64])
def test_frames_may_come_in_drops(step):
    messages = [message for kind, message in MESSAGES if kind is ToHost]
    data = b"".join(pack(message) for message in messages)
    ear = Ear(ToHost)
    for at in range(0, len(data), step):
        ear.connection.data_received(data[at : at + step])
    assert encoded(ear.heard) == encoded(messages)


def test_bodies_keep_their_bytes_when_more_comes():
    ear = Ear(ToWorker)
    for n in range(100):
        ear.connection.data_received(pack(Call(n, "echo", msgspec.Raw(msgspec.msgpack.encode(f"body {n}")))))
    assert [msgspec.msgpack.decode(call.body) for call in ear.heard] == [f"body {n}" for n in range(100)]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("!I", wire.FRAME_MAX + 1),
        b"\xff\xff\xff\xff and more",
        struct.pack("!I", 3) + b"\xc1\xc1\xc1",
        struct.pack("!I", 1) + b"\x90",
        struct.pack("!I", 0),
        struct.pack("!I", 2) + b"\x91\x63",
        pack(Planned(Plan(bytes={}))),
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + b"x" * 100,
    ],
    ids=["too long", "huge", "no msgpack", "no tag", "empty", "unknown tag", "the other way's", "http"],
)
def test_a_broken_peer_is_hung_up_on(data):
    ear = Ear(ToWorker)
    ear.connection.data_received(data)
    if data.startswith(b"GET"):  # a length within bounds: nothing to hear until it is there
        assert ear.heard == []
        return
    assert ear.transport.closing
    assert ear.heard == []


def test_nothing_is_heard_after_garbage():
    ear = Ear(ToWorker)
    ear.connection.data_received(pack(Stop()) + struct.pack("!I", 1) + b"\xc1" + pack(Stop()))
    assert encoded(ear.heard) == encoded([Stop()])


def test_nothing_is_heard_after_closing_in_mid_read():
    ear = Ear(ToWorker)
    ear.connection._receive = lambda message: (ear.heard.append(message), ear.connection.close())
    ear.connection.data_received(pack(Stop()) * 3)
    assert len(ear.heard) == 1


def test_too_long_a_message_is_refused_before_it_is_sent(monkeypatch):
    monkeypatch.setattr(wire, "FRAME_MAX", 100)
    with pytest.raises(FrameTooLong, match="100 are allowed"):
        pack(Progressed("x" * 200, 0, 0))
    assert pack(Progressed("x", 0, 0))


def test_sending_to_who_is_gone_is_silent():
    ear = Ear(ToWorker)
    ear.connection.connection_lost(None)
    ear.connection.send(Stop())
    ear.connection.close()
    assert (ear.lost, ear.transport.written) == (1, b"")


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
raws = json_like.map(lambda value: msgspec.Raw(msgspec.msgpack.encode(value)))
ids = st.integers(0, 2**63)
bodies = st.builds(
    ErrorBody,
    code=st.text(),
    message=st.text(),
    param=st.none() | st.text(),
    retry_after=st.none() | st.floats(allow_nan=False),
    extra=st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1) | st.text()),
)
news = st.builds(
    News,
    st.lists(st.tuples(ids, raws), max_size=5),
    st.lists(ids, max_size=5),
    st.lists(st.tuples(ids, bodies), max_size=3),
)
to_host = st.one_of(
    st.builds(Planned, st.builds(Plan, bytes=st.dictionaries(st.text(), st.integers(0, 2**63)), notes=st.just(("a",)))),
    st.builds(Progressed, st.text(), ids, ids),
    st.builds(Ready, st.builds(InstanceInfo, capacity=ids, context=st.none() | ids, slots=ids)),
    st.builds(Failed, bodies),
    news,
)
to_worker = st.one_of(
    st.just(Proceed()), st.just(Stop()), st.builds(Cancel, ids), st.builds(Call, ids, st.text(), raws)
)


@given(st.lists(to_host, max_size=6), st.lists(st.integers(1, 50), max_size=20))
def test_any_messages_to_the_host_survive_any_cuts(messages, cuts):
    survive(ToHost, messages, cuts)


@given(st.lists(to_worker, max_size=6), st.lists(st.integers(1, 50), max_size=20))
def test_any_messages_to_the_worker_survive_any_cuts(messages, cuts):
    survive(ToWorker, messages, cuts)


@given(st.binary(max_size=300))
def test_any_bytes_are_messages_or_an_end(data):
    ear = Ear(ToWorker)
    ear.connection.data_received(data)


def survive(type_, messages, cuts):
    data = b"".join(pack(message) for message in messages)
    ear = Ear(type_)
    for cut in cuts:
        ear.connection.data_received(data[:cut])
        data = data[cut:]
    ear.connection.data_received(data)
    assert encoded(ear.heard) == encoded(messages)
    assert not ear.transport.closing


async def pair(receive):
    """Two connections over a real socket pair; `receive` hears what the first one sends."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    lost = asyncio.Event()
    sender = Connection(ToWorker, lambda _: None, lambda: None)
    hearer = Connection(ToHost, receive, lost.set)
    await loop.create_connection(lambda: sender, sock=ours)
    await loop.create_connection(lambda: hearer, sock=theirs)
    return sender, hearer, lost


async def test_a_hundred_thousand_events_arrive_in_order():
    heard, over = [], asyncio.Event()

    def receive(message):
        heard.extend(call for call, _ in message.answers)
        if message.ended:
            over.set()

    sender, _, lost = await pair(receive)
    began = time.process_time()
    for n in range(100_000):
        sender.send(News([(n, RAW)], [], []))
        if n % 1000 == 0:
            await asyncio.sleep(0)
    sender.send(News([], [1], []))
    await over.wait()
    assert heard == list(range(100_000))
    assert time.process_time() - began < 10
    sender.close()
    await lost.wait()


async def test_an_answer_of_a_hundred_megabytes_arrives():
    heard = asyncio.get_running_loop().create_future()
    sender, hearer, _ = await pair(heard.set_result)
    body = b"\xa5" * (100 << 20)
    began = time.process_time()
    sender.send(News([(1, msgspec.Raw(msgspec.msgpack.encode(body)))], [], []))
    message = await heard
    assert msgspec.msgpack.decode(message.answers[0][1]) == body
    assert time.process_time() - began < 10
    assert len(hearer._buffer) == 0
    sender.close()


def encoded(messages):
    return [msgspec.msgpack.encode(message) for message in messages]
