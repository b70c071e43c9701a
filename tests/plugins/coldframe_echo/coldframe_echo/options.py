"""The engine's options: what a manifest of this engine can ask to go wrong while it plans, loads and closes."""

from __future__ import annotations

from typing import Annotated

import msgspec

from coldframe_echo.api import Bytes, Crash, Seconds

Capacity = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Attempts = Annotated[int, msgspec.Meta(ge=0, le=100)]


class EchoOptions(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The options of one manifest; all of them leave a healthy instance when they are not set."""

    capacity: Capacity | None = None
    """Requests the instance takes side by side; default: its slots."""
    plan_seconds: Seconds = 0.0
    """How long the plan takes."""
    plan_bytes: Bytes | None = None
    """Bytes the plan tells; default: `hoard_bytes` plus the size of the model file."""
    plan_fails: str | None = None
    """The plan raises `LoadFailed` with this message."""
    plan_crash: Crash | None = None
    """The process dies while planning: `segv`, `abort`, `kill`, or an exit code."""
    vram_bytes: Bytes | None = None
    """Bytes the accelerator named by the manifest's `device` is said to have; no real one is touched."""
    load_seconds: Seconds = 0.0
    """How long the load takes; progress is reported on the way."""
    load_fails: str | None = None
    """The load raises `LoadFailed` with this message, after `load_seconds`."""
    load_crash: Crash | None = None
    """The process dies after `load_seconds`: `segv`, `abort`, `kill`, or an exit code."""
    child: bool = False
    """Start a process of its own, `sleep`, which the instance never ends; its pid is in `info().detail`."""
    load_oom: Attempts = 0
    """How many attempts run out of memory, after `load_seconds`: 1 is the first load only, 2 the retry as well."""
    hoard_bytes: Bytes = 0
    """RAM taken and touched while loading, and held until the instance closes."""
    close_seconds: Seconds = 0.0
    """How long closing takes."""
    deaf: bool = False
    """SIGTERM is ignored and closing never ends: only SIGKILL helps. Never ask this of an instance placed `inline`."""
