"""The devices that llama.cpp can use, those that a manifest allows, and the target that a model is loaded to.

Memory pools have the names that torch gives devices: `cuda:0`, `mps`, and `ram` for the CPU.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from functions.engines.llama.model.native_library import ggml
from host.errors import LoadFailed
from host.function import RAM

_GPU, _INTEGRATED = 1, 2
ALL_LAYERS = -1

Split = Literal["none", "layer", "row"]

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
    integrated: bool = False
    """It shares the machine's memory."""


class Target(msgspec.Struct, kw_only=True, frozen=True):
    """Where a model is loaded: the CPU, or accelerators and the layers on each."""

    devices: tuple[Device, ...] = ()
    accelerators: tuple[Device, ...] = ()
    """All accelerators that llama.cpp sees, used or not."""
    layers: int = ALL_LAYERS
    """How many layers go to accelerators, the last ones first; the output counts as one, below 0 is all of them."""
    split: Split = "none"
    shares: tuple[float, ...] = ()
    """How much of the layers each of several devices takes, as proportions."""

    @property
    def device(self) -> Device | None:
        """The first accelerator; None when the CPU computes alone."""
        return self.devices[0] if self.devices else None

    @property
    def pool(self) -> str:
        """The memory pool that most is taken from."""
        return self.devices[0].pool if self.devices else RAM

    def array(self) -> Any:
        """Return the NULL-terminated array that llama.cpp takes as `devices`; empty keeps every accelerator out."""
        handles = [device.handle for device in self.devices]
        return (ctypes.c_void_p * (len(handles) + 1))(*handles, None)

    def offloaded(self, layers: int) -> int:
        """Return how many of a model's `layers`, and its output, are on accelerators."""
        if not self.devices:
            return 0
        return layers + 1 if self.layers < 0 else min(self.layers, layers + 1)

    def pools(self, layers: int) -> list[str]:
        """Return the pool of each of a model's `layers`, and of its output, as llama.cpp lays them out."""
        count = self.offloaded(layers)
        shares = self.shares if len(self.devices) > 1 and any(self.shares) else (1.0, *[0.0] * (len(self.devices) - 1))
        ends = [end / sum(shares) for end in itertools.accumulate(shares)] if self.devices else []
        first = layers + 1 - count
        placed = [RAM] * first
        for index in range(count):
            at = next((i for i, end in enumerate(ends) if end > index / count), len(ends) - 1)
            placed.append(self.devices[at].pool)
        return placed


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
        kind = ggml.ggml_backend_dev_type(handle)
        if kind not in (_GPU, _INTEGRATED):
            continue
        name = ggml.ggml_backend_dev_name(handle).decode()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
        found.append(
            Device(
                handle=handle,
                name=name,
                pool=pool_of(name),
                total=total.value,
                free=free.value,
                integrated=kind == _INTEGRATED,
            )
        )
    return tuple(found)


def candidates(device: str, seen: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the devices of `seen` that a manifest's `device` allows, none for the CPU.

    Integrated ones are left out where there is another. Raises `LoadFailed` when the named accelerator is not there.
    """
    if device == "cpu":
        return ()
    kind, _, _ = device.partition(":")
    fitting = [
        one for one in seen if device == "auto" or one.pool == device or (one.pool.startswith(kind) and device == kind)
    ]
    if not fitting and device != "auto":
        there = ", ".join(one.pool for one in seen) or "none"
        raise LoadFailed(
            f"device: {device} is not there for llama.cpp (accelerators it sees: {there}). "
            "Set `device: cpu`, or install a build of llama-cpp-python for this accelerator."
        )
    return tuple(one for one in fitting if not one.integrated) or tuple(fitting)


def choose(device: str) -> Target:
    """Return one whole device for a manifest's `device`, the one with the most free memory; raises `LoadFailed`."""
    seen = accelerators()
    found = candidates(device, seen)
    best = max(found, key=lambda one: one.free, default=None)
    return Target(devices=(best,) if best else (), accelerators=seen)


def to_detail(target: Target, layers: int) -> dict[str, int | str]:
    """Return the target of a model with `layers` layers as entries of a plan's `detail`; see `from_detail`."""
    if not target.devices:
        return {"offloaded": 0}
    detail: dict[str, int | str] = {
        "offloaded": target.offloaded(layers),
        "devices": ",".join(device.pool for device in target.devices),
        "split": target.split,
    }
    if target.shares:
        detail["shares"] = ",".join(f"{share:g}" for share in target.shares)
    return detail


def from_detail(detail: Mapping[str, int | float | str], seen: tuple[Device, ...] | None = None) -> Target:
    """Return the target in a plan's `detail`; raises `LoadFailed` if one of its devices is gone."""
    wanted = [pool for pool in str(detail.get("devices", "")).split(",") if pool]
    if seen is None:
        seen = accelerators() if wanted else ()  # initialising devices takes their memory: not for a model on the CPU
    by_pool = {device.pool: device for device in seen}
    gone = [pool for pool in wanted if pool not in by_pool]
    if gone:
        raise LoadFailed(f"{', '.join(gone)} was there when this model was planned, and is gone")
    split = str(detail.get("split", "none"))
    return Target(
        devices=tuple(by_pool[pool] for pool in wanted),
        accelerators=seen,
        layers=int(detail.get("offloaded", 0)),
        split="layer" if split == "layer" else "row" if split == "row" else "none",
        shares=tuple(float(share) for share in str(detail.get("shares", "")).split(",") if share),
    )
