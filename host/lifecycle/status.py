"""The status of one deployment, as `GET /v1/functions` returns it."""

from __future__ import annotations

from typing import Any

import msgspec

from host.function import Plan
from host.state import State


class LoadProgress(msgspec.Struct, kw_only=True, frozen=True):
    """How far a cold start is: the stage, and bytes done of bytes in all where known."""

    stage: str
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        """Return it in a few words, for people."""
        if not self.total:
            return self.stage
        return f"{self.stage} {self.done // 1_000_000}/{self.total // 1_000_000} MB"


class LastError(msgspec.Struct, kw_only=True, frozen=True):
    """The last thing that went wrong with a load or an instance."""

    at: float
    code: str
    message: str
    log: str = ""
    """The tail of the worker's log, when it died."""


class Status(msgspec.Struct, kw_only=True, frozen=True):
    """One deployment as it is now. Times left are in seconds; sizes in bytes."""

    name: str
    task: str
    state: State
    model: str
    engine: str
    placement: str
    aliases: tuple[str, ...] = ()
    since: float
    """When it came into this state, seconds since the epoch."""
    pid: int | None = None
    capacity: int | None = None
    slots: int | None = None
    context: int | None = None
    detail: dict[str, Any] = {}
    """What the instance says of itself: what was chosen while loading, and why; empty when cold."""
    bytes: dict[str, int]
    """What its plan reserved, by pool; empty when cold."""
    plan: Plan | None = None
    """The plan of the instance that is loaded, or was last."""
    progress: LoadProgress | None = None
    in_flight: int
    waiting: int
    idle: float | None
    """The manifest's idle time; null for never."""
    idle_left: float | None = None
    """Until it is evicted, if no work comes; null while it works or is not loaded."""
    cooldown_left: float = 0.0
    loads: int
    evictions: int
    last_error: LastError | None = None
