"""Names the processor: what a measured choice holds on, and what a benchmark ran on."""

from __future__ import annotations

import functools
import hashlib
import platform
from pathlib import Path

import msgspec

from host import machine

_CPUINFO = Path("/proc/cpuinfo")


class Processor(msgspec.Struct, kw_only=True, frozen=True):
    """A processor as the kernel describes it; what cannot be read is empty."""

    model: str
    flags: frozenset[str]
    cores: int
    """Cores this process may use: affinity and cgroup quota."""

    def has(self, prefix: str) -> bool:
        """Return whether a flag begins so: `amx`, `avx512`, `avx512_bf16`."""
        return any(flag.startswith(prefix) for flag in self.flags)

    @property
    def fingerprint(self) -> str:
        """A short text that differs where speeds may: the model, its instructions, the cores."""
        flags = hashlib.sha256(" ".join(sorted(self.flags)).encode()).hexdigest()[:12]
        return f"{self.model} {flags} {self.cores}"


@functools.cache
def processor(cpuinfo: Path = _CPUINFO) -> Processor:
    """Return this machine's processor."""
    found = _first(cpuinfo)
    named = [found[key] for key in ("model name", "cpu family", "model", "stepping", "CPU part") if found.get(key)]
    return Processor(
        model=" ".join(named) or platform.processor() or platform.machine(),
        flags=frozenset((found.get("flags") or found.get("Features") or "").split()),
        cores=machine.cores(),
    )


def _first(cpuinfo: Path) -> dict[str, str]:
    """Return the fields of the first processor listed."""
    try:
        lines = cpuinfo.read_text(errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}
