"""Fits a model into memory: chooses devices, layers to offload, slots, and context length.

What the manifest sets is never changed: if that does not fit, the host refuses the plan by its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from functions.engines.llama.memory.devices import Target
from host.errors import OutOfMemory
from host.function import RAM

SLOTS = 4
"""Slots if the manifest has `slots: auto`."""
CONTEXT_STEP = 256
COMFORTABLE_CONTEXT = 4096
"""Context per slot, in tokens, below which fewer slots are preferred to shorter ones."""
MIN_CONTEXT = 512
SHARE = 2
"""`context: auto` takes at most this share (one half) of what the weights leave, so that other models fit too."""

Bytes = Mapping[str, int]
"""Bytes by memory pool; as a limit, missing pools are unlimited."""
BytesNeeded = Callable[[Target, int, int], Bytes]
"""Bytes needed for a target, a context per slot, and a number of slots."""


class FitRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The manifest's values, None for `auto`, and the model's trained context and layers."""

    context: int | None = None
    slots: int | None = None
    layers: int | None = None
    attempt: int = 0
    trained: int
    model_layers: int


class FitResult(msgspec.Struct, kw_only=True, frozen=True):
    """The target, context per slot and slots to load."""

    target: Target
    context: int
    slots: int


class MemoryFit:
    """Fits one model. `needed` and `weights` return bytes with and without a context; `room` is available."""

    def __init__(
        self, request: FitRequest, needed: BytesNeeded, weights: Callable[[Target], Bytes], room: Bytes
    ) -> None:
        self._request = request
        self._needed = needed
        self._weights = weights
        self._room = room

    def choose(self, layouts: Sequence[Target]) -> FitResult:
        """Choose the first of `layouts` that the model fits into, else as many layers as fit on the last.

        Raises `OutOfMemory` when a second attempt cannot take less than the first.
        """
        target = self._target(layouts)
        choice = self._shape(target, layouts)
        return self._shrink(choice) if self._request.attempt else choice

    def _target(self, layouts: Sequence[Target]) -> Target:
        context = self._request.context or min(self._request.trained, COMFORTABLE_CONTEXT)
        slots = self._request.slots or 1
        for target in layouts:
            if fits_into(self._needed(target, context, slots), self._room):
                return target
        last = layouts[-1]
        if not last.devices or self._request.layers is not None:
            return last
        accelerators = {pool: limit for pool, limit in self._room.items() if pool != RAM}

        def fits(layers: int) -> bool:
            return fits_into(self._needed(_cut(last, layers), context, slots), accelerators)

        return _cut(last, largest(0, self._request.model_layers, fits))

    def _shape(self, target: Target, layouts: Sequence[Target]) -> FitResult:
        request = self._request
        # A partly offloaded model already traded context for layers.
        partial = target not in layouts
        limits = self._room if request.context or partial else self._share_of(target)
        least = min(request.trained, COMFORTABLE_CONTEXT)
        choice = FitResult(target=target, context=MIN_CONTEXT, slots=1)
        for slots in [request.slots] if request.slots else [SLOTS, SLOTS // 2, 1]:
            context = request.context or (least if partial else self._longest(target, slots, limits))
            choice = FitResult(target=target, context=context, slots=slots)
            fits = fits_into(self._needed(target, context, slots), limits)
            if fits and (request.context or context >= least):
                break
        return choice

    def _share_of(self, target: Target) -> Bytes:
        taken = self._weights(target)
        return {
            pool: taken.get(pool, 0) + max(0, room - taken.get(pool, 0)) // SHARE for pool, room in self._room.items()
        }

    def _longest(self, target: Target, slots: int, limits: Bytes) -> int:
        """Return the longest context up to the trained one that fits, in steps of 256; `MIN_CONTEXT` if none does."""
        trained = self._request.trained

        def fits(steps: int) -> bool:
            return fits_into(self._needed(target, steps * CONTEXT_STEP, slots), limits)

        if fits_into(self._needed(target, trained, slots), limits):
            return trained
        least = min(MIN_CONTEXT, trained)
        return max(least, largest(least // CONTEXT_STEP, trained // CONTEXT_STEP, fits) * CONTEXT_STEP)

    def _shrink(self, choice: FitResult) -> FitResult:
        """Return a smaller choice within what the manifest leaves open."""
        request = self._request
        context = request.context or max(min(MIN_CONTEXT, choice.context), choice.context // 2)
        slots = request.slots or max(1, choice.slots // 2)
        smaller = msgspec.structs.replace(choice, context=context, slots=slots)
        if smaller == choice and choice.target.devices and request.layers is None:
            layers = choice.target.offloaded(request.model_layers)
            smaller = msgspec.structs.replace(choice, target=_cut(choice.target, layers * 3 // 4))
        if smaller == choice:
            raise OutOfMemory("memory ran out, and the manifest leaves nothing that could be made smaller")
        return smaller


def fits_into(taken: Bytes, limits: Bytes) -> bool:
    """Return whether every pool gives no more than its limit."""
    return all(size <= limits[pool] for pool, size in taken.items() if pool in limits)


def largest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number from `low` to `high` that fits, by bisection; `low` even where it does not."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _cut(target: Target, layers: int) -> Target:
    """Return the target with fewer layers on it; without any it is the CPU."""
    if layers <= 0:
        return Target(accelerators=target.accelerators)
    return msgspec.structs.replace(target, layers=layers)
