"""The limit on locked memory of this process (`RLIMIT_MEMLOCK`), in bytes."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

_IPC_LOCK = 14
"""The capability that lifts the limit."""


def limit(status: Path = Path("/proc/self/status")) -> int | None:
    """Return the bytes that may be locked; None if there is no limit or it is unknown."""
    with contextlib.suppress(OSError, ValueError):
        for line in status.read_text().splitlines():
            if line.startswith("CapEff:") and int(line.split()[1], 16) >> _IPC_LOCK & 1:
                return None
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft
