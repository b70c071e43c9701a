"""How large a context to make, and the bytes it will take: chosen before any weight is read.

It knows budgets and sizes, and nothing of how sizes are weighed or of what is generated.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from functions.engines.llama import devices
from functions.engines.llama.devices import Target
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.scales import ContextSize, ModelSize, Scales
from host.errors import OutOfMemory
from host.function import RAM, Load, Plan

SLOTS = 4
"""Sequences side by side when the manifest leaves it open."""
PROCESS = 40 << 20
"""Bytes of a worker that are neither weights, cache nor compute buffers: interpreter, vocabulary, requests."""
_STEP = 256
_ENOUGH = 4096
"""Tokens per slot under which having fewer slots is better than having shorter ones."""
_LEAST = 512
_SHARE = 2
"""`context: auto` takes at most one part in so many of what the weights leave: other models want to live as well."""


class Choice(msgspec.Struct, kw_only=True, frozen=True):
    """A context's shape, and why it is that."""

    context: int
    slots: int
    notes: tuple[str, ...] = ()


def make(load: Load) -> Plan:
    """Plan a load. Raises `LoadFailed` for a file that cannot be used, and `OutOfMemory` when a second attempt cannot
    be any smaller than the first."""
    options = msgspec.msgpack.decode(load.options, type=LlamaOptions)
    target = devices.choose(load.manifest.device)
    scales = Scales(load.path, options, target)
    try:
        model = scales.model()
        choice = choose(load, model, scales, target)
        size = scales.context(choice.context, choice.slots)
    finally:
        scales.close()
    return Plan(
        bytes=bytes_by_pool(model, size, target),
        device=target.pool if target.device else "cpu",
        slots=choice.slots,
        context=choice.context,
        notes=choice.notes,
        detail={
            "weights": model.weights,
            "cache": size.cache,
            "compute": size.compute + size.host,
            "trained_context": model.trained,
            "layers": model.layers,
            "offloaded": model.offloaded if target.device else 0,
        },
        pools={one.pool: one.total for one in target.accelerators},
    )


def choose(load: Load, model: ModelSize, scales: Scales, target: Target) -> Choice:
    """Choose context and slots: what the manifest says, else what fits."""
    manifest = load.manifest
    asked_context = None if manifest.context == "auto" else manifest.context
    asked_slots = None if manifest.slots == "auto" else manifest.slots
    room = _room(load, model, target, whole=asked_context is not None)
    choice = Choice(context=_LEAST, slots=1)
    for slots in [asked_slots] if asked_slots else [SLOTS, SLOTS // 2, 1]:
        context = asked_context or _longest(model.trained, slots, room, scales)
        choice = Choice(context=context, slots=slots)
        fits = room is None or _taken(scales.context(context, slots)) <= room
        if fits and (asked_context or context >= min(model.trained, _ENOUGH)):
            break
    if load.attempt:
        choice = _less(choice, asked_context, asked_slots)
    return msgspec.structs.replace(choice, notes=tuple(_notes(choice, model, asked_context, asked_slots, load)))


def bytes_by_pool(model: ModelSize, size: ContextSize, target: Target) -> dict[str, int]:
    """Return the bytes each pool will give: layers on an accelerator take their weights and cache along."""
    if target.device is None:
        return {RAM: model.weights + size.cache + size.compute + size.host + PROCESS}
    weights = model.weights * model.offloaded // (model.layers + 1)
    cache = size.cache * min(model.offloaded, model.layers) // max(model.layers, 1)
    return {
        target.pool: weights + cache + size.compute,
        RAM: model.weights - weights + size.cache - cache + size.host + PROCESS,
    }


def _room(load: Load, model: ModelSize, target: Target, *, whole: bool) -> int | None:
    """Return the bytes that cache and buffers may take; None when no budget is known."""
    budget = load.memory.get(target.pool, target.device.total if target.device else None)
    if budget is None:
        return None
    left = max(0, budget - model.weights - (0 if target.device else PROCESS))
    return left if whole else left // _SHARE


def _longest(trained: int, slots: int, room: int | None, scales: Scales) -> int:
    """Return the longest context up to the trained one whose cache fits, in steps of 256; `_LEAST` if none does."""
    least = min(_LEAST, trained)
    if room is None or _taken(scales.context(trained, slots)) <= room:
        return trained
    low, high = least // _STEP, trained // _STEP
    while low < high - 1:
        middle = (low + high) // 2
        fits = _taken(scales.context(middle * _STEP, slots)) <= room
        low, high = (middle, high) if fits else (low, middle)
    return max(least, low * _STEP)


def _taken(size: ContextSize) -> int:
    return size.cache + size.compute + size.host


def _less(choice: Choice, context: int | None, slots: int | None) -> Choice:
    """Return a smaller shape, as far as the manifest leaves it open."""
    smaller = Choice(
        context=context or max(min(_LEAST, choice.context), choice.context // 2),
        slots=slots or max(1, choice.slots // 2),
    )
    if smaller == choice:
        raise OutOfMemory("memory ran out, and the manifest leaves nothing that could be made smaller")
    return smaller


def _notes(choice: Choice, model: ModelSize, context: int | None, slots: int | None, load: Load) -> Iterator[str]:
    if load.attempt:
        yield "The first load ran out of memory: this one takes less of what the manifest leaves open."
    if slots is None:
        yield f"{choice.slots} slots, because the manifest leaves it open."
    if context is None and choice.context < model.trained:
        yield f"{choice.context} tokens per slot instead of the trained {model.trained}, to leave memory for others."
    elif context is None:
        yield f"{choice.context} tokens per slot, what the model was trained for."
    elif context > model.trained:
        yield f"{context} tokens per slot are more than the {model.trained} the model was trained for."
