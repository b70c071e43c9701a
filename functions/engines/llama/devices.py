"""Where a model's layers go: a manifest's `device` as one of the devices llama.cpp sees, or none.

It knows ggml's list of devices, and nothing of models. Pools are named as torch names devices.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import msgspec

from functions.engines.llama.library import ggml
from host.errors import LoadFailed
from host.function import RAM

_GPU, _INTEGRATED = 1, 2

ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
ggml.ggml_backend_dev_name.argtypes = [ctypes.c_void_p]
ggml.ggml_backend_dev_name.restype = ctypes.c_char_p
ggml.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
ggml.ggml_backend_dev_type.restype = ctypes.c_int
_SIZE_P = ctypes.POINTER(ctypes.c_size_t)
ggml.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, _SIZE_P, _SIZE_P]
ggml.ggml_backend_dev_memory.restype = None


class Device(msgspec.Struct, kw_only=True, frozen=True):
    """One accelerator."""

    handle: int
    name: str
    """ggml's name: `CUDA0`, `Metal`, …"""
    pool: str
    """`cuda:0`, `mps`, …"""
    total: int
    free: int


class Target(msgspec.Struct, kw_only=True, frozen=True):
    """What a model is to run on: one accelerator, or the CPU alone."""

    device: Device | None = None
    accelerators: tuple[Device, ...] = ()

    @property
    def pool(self) -> str:
        """The memory pool that weights and cache are taken from."""
        return self.device.pool if self.device else RAM

    def array(self) -> Any:
        """Return the NULL-terminated array that llama.cpp takes as `devices`; empty keeps every accelerator out."""
        handles = [self.device.handle] if self.device else []
        return (ctypes.c_void_p * (len(handles) + 1))(*handles, None)


def pool_of(name: str) -> str:
    """Return the pool of a ggml buffer or device name: `CUDA0` is `cuda:0`, `CUDA_Host` and `CPU` are `ram`."""
    match = re.fullmatch(r"([A-Za-z]+?)(\d*)(?:_Split|_Private|_Mapped)?", name)
    if match is None or match[1].startswith("CPU"):
        return RAM
    kind = match[1].lower()
    if kind in ("metal", "mtl"):
        return "mps"
    return f"{'cuda' if kind in ('cuda', 'rocm') else kind}:{match[2] or 0}"


def accelerators() -> tuple[Device, ...]:
    """Return the accelerators this build of llama.cpp can use on this machine."""
    found = []
    for index in range(ggml.ggml_backend_dev_count()):
        handle = ggml.ggml_backend_dev_get(index)
        if ggml.ggml_backend_dev_type(handle) not in (_GPU, _INTEGRATED):
            continue
        name = ggml.ggml_backend_dev_name(handle).decode()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
        found.append(Device(handle=handle, name=name, pool=pool_of(name), total=total.value, free=free.value))
    return tuple(found)


def choose(device: str) -> Target:
    """Return the target for a manifest's `device`; raises `LoadFailed` when there is no such accelerator here."""
    if device == "cpu":
        return Target()
    seen = accelerators()
    kind, _, _ = device.partition(":")
    fitting = [
        one for one in seen if device == "auto" or one.pool == device or (one.pool.startswith(kind) and device == kind)
    ]
    if fitting:
        return Target(device=max(fitting, key=lambda one: one.free), accelerators=seen)
    if device == "auto":
        return Target()
    there = ", ".join(one.pool for one in seen) or "none"
    raise LoadFailed(
        f"device: {device} is not there for llama.cpp (accelerators it sees: {there}). "
        "Set `device: cpu`, or install a build of llama-cpp-python for this accelerator."
    )
