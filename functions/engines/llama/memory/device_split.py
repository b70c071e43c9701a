"""Candidate layouts of a model over accelerators, the best first: one device, several with shares, or the CPU.

Raises `LoadFailed` where `tensor_split` or `main_gpu` do not match the devices. What fits is decided in `fit`.
"""

from __future__ import annotations

from collections.abc import Mapping

from functions.engines.llama.memory.devices import ALL_LAYERS, Device, Split, Target
from functions.engines.llama.options import LlamaOptions
from host.errors import LoadFailed

_GIB = 1 << 30


def layouts(
    options: LlamaOptions, found: tuple[Device, ...], room: Mapping[str, int], seen: tuple[Device, ...] = ()
) -> list[Target]:
    """Return the targets to try in turn for a model as a whole: on one device if it fits there, else on few, else all.

    `found` are the devices the manifest allows, `room` the bytes each pool may give. Raises `LoadFailed` for options
    that do not agree with the devices there are.
    """
    if not found:
        return [Target(accelerators=seen)]
    layers = ALL_LAYERS if options.gpu_layers == "auto" else options.gpu_layers
    if layers == 0:
        return [Target(accelerators=seen)]

    def over(devices: tuple[Device, ...], shares: tuple[float, ...] = ()) -> Target:
        split: Split = "none" if len(devices) == 1 else "row" if options.split_mode == "row" else "layer"
        return Target(devices=devices, accelerators=seen, layers=layers, split=split, shares=shares)

    if options.tensor_split is not None:
        return [over(found, _shares(options.tensor_split, found))]
    if options.main_gpu is not None:
        return [over((_main(options.main_gpu, found),))]
    by_room = sorted(found, key=lambda device: -room.get(device.pool, device.free))
    if options.split_mode == "none" or len(found) == 1:
        return [over((by_room[0],))]
    first = len(found) if options.split_mode in ("layer", "row") else 1
    return [over(*_widest(found, by_room[:count], room)) for count in range(first, len(found) + 1)]


def _widest(
    found: tuple[Device, ...], among: list[Device], room: Mapping[str, int]
) -> tuple[tuple[Device, ...], tuple[float, ...]]:
    """Return devices in llama.cpp's order, and what each may give in GiB as its share."""
    devices = tuple(device for device in found if device in among)
    if len(devices) == 1:
        return devices, ()
    return devices, tuple(round(room.get(device.pool, device.free) / _GIB, 3) for device in devices)


def _shares(split: list[float], found: tuple[Device, ...]) -> tuple[float, ...]:
    if len(split) != len(found):
        there = ", ".join(device.pool for device in found)
        raise LoadFailed(f"options.tensor_split has {len(split)} proportions, and there are {len(found)}: {there}")
    return tuple(split) if len(found) > 1 else ()


def _main(number: int, found: tuple[Device, ...]) -> Device:
    if number >= len(found):
        there = ", ".join(device.pool for device in found)
        raise LoadFailed(f"options.main_gpu is {number}, and there are {len(found)}, counted from 0: {there}")
    return found[number]
