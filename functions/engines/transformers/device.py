"""Resolves the manifest's `device` to a torch device and to the memory pool it is accounted in. Allocates nothing."""

from __future__ import annotations

import torch

from host.errors import LoadFailed
from host.function import RAM


def choose(wanted: str) -> torch.device:
    """Return the device for `auto`, `cpu`, `cuda`, `cuda:1` or `mps`; raises `LoadFailed` for one that is not there."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if wanted == "cpu":
        return torch.device("cpu")
    if wanted == "mps":
        if not torch.backends.mps.is_available():
            raise LoadFailed("device: mps is not available on this machine; use auto or cpu", param="device")
        return torch.device("mps")
    index = int(wanted.partition(":")[2] or 0)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        seen = f"torch sees {count} CUDA device{'s' if count != 1 else ''}"
        why = seen if torch.version.cuda else "this build of torch has no CUDA"
        raise LoadFailed(f"device: {wanted} is not available: {why}; use auto or cpu", param="device")
    return torch.device("cuda", index)


def pool(device: torch.device) -> str:
    """Return the name of the memory pool: `ram`, also for `mps`, whose memory is the machine's, or `cuda:0`."""
    return str(device) if device.type == "cuda" else RAM


def pools(device: torch.device) -> dict[str, int]:
    """Return pool -> total bytes of the accelerator; empty on CPU."""
    if device.type != "cuda":
        return {}
    return {str(device): int(torch.cuda.get_device_properties(device).total_memory)}
