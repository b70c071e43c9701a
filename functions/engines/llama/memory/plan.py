"""Plans the load of a generating model: devices, layers, slots and context length, and the bytes in each memory pool.

Runs before any weight is read. Notes in the plan say what was chosen and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from functions.engines.llama.memory import devices, mlock
from functions.engines.llama.memory.device_split import layouts
from functions.engines.llama.memory.devices import Device, Target
from functions.engines.llama.memory.estimate import MemoryEstimate, ModelSize
from functions.engines.llama.memory.fit import FitRequest, FitResult, MemoryFit
from functions.engines.llama.model.adapters import sizes as adapter_sizes
from functions.engines.llama.model.native_library import lib
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.speculation.draft_model import DraftEstimate
from host.errors import LoadFailed
from host.function import RAM, Load, Plan

PROCESS = 40 << 20
"""Bytes of a worker that are neither weights, cache nor compute buffers: interpreter, vocabulary, requests."""
ACCELERATOR_SHARE = 0.95
"""Of an accelerator's memory, where the host has set no budget yet; the rest is the driver's."""


def make(load: Load, seen: tuple[Device, ...] | None = None) -> Plan:
    """Plan a load; `seen` are the accelerators, default those that are there.

    Raises `LoadFailed` for a file or options that cannot be used, and `OutOfMemory` when a second attempt cannot be
    any smaller than the first.
    """
    options = load.engine_options(LlamaOptions)
    seen = devices.accelerators() if seen is None and load.manifest.device != "cpu" else seen or ()
    found = devices.candidates(load.manifest.device, seen)
    room = available(load, found)
    extra = sum(adapter_sizes(options.adapters, Path(load.base)).values())
    _check_slots(load)
    draft = DraftEstimate(options, Path(load.base))
    estimate = MemoryEstimate(load.path, options)
    try:
        model = estimate.model()

        def weights(target: Target) -> dict[str, int]:
            return dict(Counter(_with_extras(estimate.weights(target), extra)) + draft.weights(target))

        def needed(target: Target, context: int, slots: int) -> dict[str, int]:
            own = Counter(estimate.context(target, context, slots).total)
            return dict(Counter(weights(target)) + own + draft.context(target, context, slots))

        request = _request(load, options, model)
        choice = MemoryFit(request, needed, weights, room).choose(layouts(options, found, room, seen))
        size = estimate.context(choice.target, choice.context, choice.slots)
        taken = needed(choice.target, choice.context, choice.slots)
    finally:
        estimate.close()
        draft.close()
    return Plan(
        bytes=taken,
        device=choice.target.pool if choice.target.devices else "cpu",
        slots=choice.slots,
        context=choice.context,
        notes=(*_notes(choice, request, taken, room, found), *_lock_notes(options, taken)),
        detail={
            "weights": model.weights,
            "adapters": extra,
            "cache": sum(size.cache.values()),
            "compute": sum(size.compute.values()),
            "trained_context": model.trained,
            "layers": model.layers,
            **devices.to_detail(choice.target, model.layers),
        },
        pools={one.pool: one.total for one in seen},
    )


def _check_slots(load: Load) -> None:
    most, slots = int(lib.llama_max_parallel_sequences()), load.manifest.slots
    if isinstance(slots, int) and slots > most:
        raise LoadFailed(f"the manifest's `slots` is {slots}: llama.cpp takes up to {most}")


def available(load: Load, found: tuple[Device, ...]) -> dict[str, int]:
    """Return the bytes each pool may give: the budget, and of an accelerator what is free or could be made free.

    What the host's own instances hold counts as free: it evicts them if need be.
    """
    room = {pool: size for pool, size in load.memory.items() if pool == RAM}
    for device in found:
        budget = load.memory.get(device.pool, int(device.total * ACCELERATOR_SHARE))
        room[device.pool] = min(budget, device.free + load.held.get(device.pool, 0))
    return room


def _request(load: Load, options: LlamaOptions, model: ModelSize) -> FitRequest:
    manifest = load.manifest
    return FitRequest(
        context=None if manifest.context == "auto" else manifest.context,
        slots=None if manifest.slots == "auto" else manifest.slots,
        layers=None if options.gpu_layers == "auto" else options.gpu_layers,
        attempt=load.attempt,
        trained=model.trained,
        model_layers=model.layers,
    )


def _with_extras(weights: dict[str, int], adapters: int) -> dict[str, int]:
    """Add the process's bytes to RAM, and the adapters' in proportion to the weights they apply to."""
    whole = max(1, sum(weights.values()))
    found = {pool: size + adapters * size // whole for pool, size in weights.items()}
    return found | {RAM: found.get(RAM, 0) + PROCESS}


def _notes(
    choice: FitResult, request: FitRequest, taken: dict[str, int], room: dict[str, int], found: tuple[Device, ...]
) -> Iterator[str]:
    if request.attempt:
        yield "The first load ran out of memory: this one takes less of what the manifest leaves open."
    if found:
        yield _where(choice, request, room, found)
    if request.slots is None:
        yield f"{choice.slots} slots, because the manifest leaves it open."
    pool = choice.target.pool
    of = f" (all of it takes {_mib(taken[pool])} of {_mib(room[pool])} MiB of {pool})" if pool in room else ""
    if request.context is None and choice.context < request.trained:
        instead = f"instead of the trained {request.trained}"
        yield f"{choice.context} tokens per slot {instead}, to leave memory for others{of}."
    elif request.context is None:
        yield f"{choice.context} tokens per slot, what the model was trained for."
    elif request.context > request.trained:
        yield f"{request.context} tokens per slot are more than the {request.trained} the model was trained for."


def _where(choice: FitResult, request: FitRequest, room: dict[str, int], found: tuple[Device, ...]) -> str:
    target, whole = choice.target, request.model_layers + 1
    count = target.offloaded(request.model_layers)
    there = ", ".join(f"{_mib(room.get(one.pool, one.free))} MiB of {one.pool}" for one in found)
    if not count:
        why = "gpu_layers is 0" if request.layers == 0 else f"no layer fits into {there}"
        return f"All {whole} layers on the CPU: {why}."
    over = " and ".join(device.pool for device in target.devices)
    shares = f" as {':'.join(f'{share:g}' for share in target.shares)}" if target.shares else ""
    if count == whole:
        return f"All {whole} layers on {over}{shares}."
    why = "the manifest says so" if request.layers is not None else f"no more fit into {there}"
    return f"{count} of {whole} layers on {over}{shares}, the others on the CPU: {why}."


def _lock_notes(options: LlamaOptions, taken: dict[str, int]) -> Iterator[str]:
    limit = mlock.limit() if options.mlock else None
    if limit is not None and limit < taken.get(RAM, 0):
        yield f"mlock may keep {_mib(limit)} MiB in memory (`ulimit -l`): what is beyond that can be swapped out."


def _mib(size: int) -> int:
    return -(-size // (1 << 20))
