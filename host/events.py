"""What happens in the life of instances, as events that plug-ins observe and `/v1/functions/events` streams."""

from __future__ import annotations

import time

import msgspec

from host.state import State


class Event(msgspec.Struct, kw_only=True, frozen=True, tag_field="event"):
    """Something that happened to one deployment; `at` is in seconds since the epoch."""

    name: str
    task: str
    at: float = msgspec.field(default_factory=time.time)


class StateChanged(Event, kw_only=True, frozen=True, tag="state"):
    """The deployment went from one state to another."""

    old: State
    new: State
    reason: str = ""


class LoadProgressed(Event, kw_only=True, frozen=True, tag="progress"):
    """A load came further: stage, and bytes done of bytes in all where known."""

    stage: str
    done: int = 0
    total: int = 0


class Loaded(Event, kw_only=True, frozen=True, tag="loaded"):
    """An instance is ready; how long it took and the bytes its plan reserved, by pool."""

    seconds: float
    bytes: dict[str, int]


class Evicted(Event, kw_only=True, frozen=True, tag="evicted"):
    """An instance was stopped on purpose: `idle`, `memory`, `unload`, `changed`, `shutdown`."""

    reason: str


class Died(Event, kw_only=True, frozen=True, tag="died"):
    """A worker ended by itself: how, and the tail of its log."""

    how: str
    log: str = ""


class CallQueued(Event, kw_only=True, frozen=True, tag="queued"):
    """A call began to wait for a slot; `waiting` counts it too."""

    waiting: int


class CallStarted(Event, kw_only=True, frozen=True, tag="started"):
    """A call was given to the instance after so many seconds in the queue."""

    waited: float
    waiting: int
    in_flight: int


class FirstAnswer(Event, kw_only=True, frozen=True, tag="first_answer"):
    """A streaming call gave its first answer, so many seconds after it was asked."""

    seconds: float


class CallEnded(Event, kw_only=True, frozen=True, tag="ended"):
    """A call is over: `ok`, `cancelled`, or an error's code; with the tokens it reported."""

    outcome: str
    seconds: float
    waiting: int
    in_flight: int
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    accepted_tokens: int = 0
    rejected_tokens: int = 0
