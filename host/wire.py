"""The messages between a host and a worker: length-prefixed msgpack frames over a socket pair.

Requests and answers travel as raw msgpack inside; the types of their operation code them at either end.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec

from host.errors import ErrorBody
from host.function import InstanceInfo, Load, Plan

M = TypeVar("M")


class Message(msgspec.Struct, array_like=True, frozen=True):
    """One thing said; a frame is one message."""


class Start(Message, frozen=True, tag=0):
    """First word of the host: what to plan. `requests` is operation -> `module:Struct` of its requests."""

    instance: str
    requests: dict[str, str]
    load: Load


class Proceed(Message, frozen=True, tag=1):
    """The plan was admitted: load the weights."""


class Call(Message, frozen=True, tag=2):
    """Answer this request; as a `whole`, with all answers in one frame at the end."""

    id: int
    operation: str
    body: msgspec.Raw
    whole: bool = False


class Cancel(Message, frozen=True, tag=3):
    """Nobody waits for the answers of this call any more."""

    id: int


class Stop(Message, frozen=True, tag=4):
    """Give everything back and end."""


class Planned(Message, frozen=True, tag=5):
    """The plan that `Start` asked for."""

    plan: Plan


class Progressed(Message, frozen=True, tag=6):
    """The load came further."""

    stage: str
    done: int
    total: int


class Ready(Message, frozen=True, tag=7):
    """The weights are loaded."""

    facts: InstanceInfo


class Failed(Message, frozen=True, tag=8):
    """The plan or the load went wrong; the worker ends after this."""

    error: ErrorBody


class News(Message, frozen=True, tag=9):
    """What happened to calls since the last frame, in order. Every stream's news of one step travel in one frame."""

    answers: list[tuple[int, msgspec.Raw]] = []
    ended: list[int] = []
    errors: list[tuple[int, ErrorBody]] = []
    whole: list[tuple[int, float, list[msgspec.Raw]]] = []
    """Calls that ended and were asked as a whole: seconds from the call to its first answer, and all answers."""


ToWorker = Start | Proceed | Call | Cancel | Stop
ToHost = Planned | Progressed | Ready | Failed | News

encoder = msgspec.msgpack.Encoder()
_HEAD = struct.Struct("!I")
FRAME_MAX = 1 << 30
"""Bytes; a longer frame is a broken peer, not a message."""


class FrameTooLong(ValueError):
    """A message has more bytes than `FRAME_MAX`."""


def pack(message: Message) -> bytes:
    """Return the frame of one message; raises `FrameTooLong`."""
    body = encoder.encode(message)
    if len(body) > FRAME_MAX:
        raise FrameTooLong(f"{len(body)} bytes, and {FRAME_MAX} are allowed")
    return _HEAD.pack(len(body)) + body


class Connection(asyncio.Protocol, Generic[M]):
    """One end of the wire on an event loop: calls `receive` for every message and `lose` once at the end."""

    def __init__(self, type_: Any, receive: Callable[[M], None], lose: Callable[[], None]) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(type_)
        self._receive = receive
        self._lose = lose
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by inheritance

    def data_received(self, data: bytes) -> None:
        """Take in bytes, and hand over the messages they complete."""
        buffer = self._buffer
        buffer += data
        start, end = 0, len(buffer)
        while end - start >= _HEAD.size:
            (length,) = _HEAD.unpack_from(buffer, start)
            if length > FRAME_MAX:
                self.close()
                return
            stop = start + _HEAD.size + length
            if end < stop:
                break
            # Copied out of the buffer: raw parts of a message keep pointing into these bytes.
            try:
                message = self._decoder.decode(bytes(memoryview(buffer)[start + _HEAD.size : stop]))
            except msgspec.MsgspecError:  # as broken a peer as one whose frames are too long
                self.close()
                return
            start = stop
            self._receive(message)
            if self._transport is None or self._transport.is_closing():
                return
        del buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the end."""
        self._transport = None
        self._lose()

    def send(self, message: Message) -> None:
        """Write one message; silently nothing when the peer is gone, which `lose` has reported already.

        uvloop writes what was sent in one turn of the loop by one system call, at the end of the turn.
        """
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(pack(message))

    def close(self) -> None:
        """Close this end; `lose` follows."""
        if self._transport is not None:
            self._transport.close()
