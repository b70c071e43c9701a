"""What this machine lets the process use: cores and memory, from cgroups, affinity and the kernel. Linux and macOS.

The threads of engines and the memory budget are read here and nowhere else.
"""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


def cores(root: Path = _ROOT) -> int:
    """Return how many cores may be used side by side: affinity and cgroup quota, rounded down, at least 1.

    Rounded down because a lock-step group of threads runs as fast as its slowest, and a throttled one is very slow.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(root)
    return max(1, affinity if quota is None else min(affinity, int(quota)))


def _quota(root: Path) -> float | None:
    """Return the cores of the tightest cgroup CPU quota (v2, else v1), None where there is none."""
    found = []
    for folder in _folders(root):
        words = _words(folder / "cpu.max")
        if len(words) == 2 and words[0] != "max":
            found.append(int(words[0]) / int(words[1]))
    v1 = root / "cpu"
    quota, period = _number(v1 / "cpu.cfs_quota_us"), _number(v1 / "cpu.cfs_period_us")
    if quota and period and quota > 0:
        found.append(quota / period)
    return min(found, default=None)


def memory_total(root: Path = _ROOT) -> int:
    """Return bytes of RAM this process may use at most: the machine's, or the tightest cgroup limit."""
    limits = [limit for folder in _folders(root) if (limit := _number(folder / "memory.max"))]
    v1 = _number(root / "memory" / "memory.limit_in_bytes")
    if v1:
        limits.append(v1)
    return min([_physical(), *limits])


def memory_available(root: Path = _ROOT) -> int:
    """Return bytes of RAM that can be had now without swapping: what the kernel says, and what cgroups leave."""
    left = [_physical_available()]
    for folder in _folders(root):
        limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
        if limit and used is not None:
            left.append(limit - used + _reclaimable(folder / "memory.stat"))
    limit, used = _number(root / "memory/memory.limit_in_bytes"), _number(root / "memory/memory.usage_in_bytes")
    if limit and used is not None:
        left.append(limit - used + _reclaimable(root / "memory/memory.stat"))
    return max(0, min(left))


def resident(pid: int, proc: Path = _PROC) -> int | None:
    """Return the bytes of RAM a process takes, shared pages counted by their share (PSS); None when it is gone."""
    for name, key in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        for line in _text(proc / str(pid) / name).splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    return None


def _folders(root: Path) -> list[Path]:
    """Return the cgroup v2 folders of this process, its own first, then every parent: each may set a limit."""
    for line in _text(_PROC / "self/cgroup").splitlines():
        if line.startswith("0::"):
            own = root / line[3:].strip("/")
            return [folder for folder in (own, *own.parents) if folder == root or root in folder.parents]
    return [root]


def _physical() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _physical_available() -> int:
    for line in _text(_PROC / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return _physical()


def _reclaimable(stat: Path) -> int:
    """Return the bytes of page cache a cgroup is charged for and would give back: weights read and not in use."""
    for line in _text(stat).splitlines():
        if line.startswith(("inactive_file ", "total_inactive_file ")):
            return int(line.split()[1])
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _words(path: Path) -> list[str]:
    return _text(path).split()


def _number(path: Path) -> int | None:
    word = _text(path).strip()
    return int(word) if word.lstrip("-").isdigit() else None
