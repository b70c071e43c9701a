"""Plans the load of a scoring model: devices and the longest sequence, and the bytes in each memory pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from functions.engines.llama.memory import devices
from functions.engines.llama.memory.device_split import layouts
from functions.engines.llama.memory.devices import Device, Target
from functions.engines.llama.memory.fit import FitRequest, FitResult, MemoryFit
from functions.engines.llama.memory.plan import PROCESS, available
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.scoring.estimate import ScoringEstimate
from host.errors import LoadFailed
from host.function import RAM, Load, Plan


def make(load: Load, seen: tuple[Device, ...] | None = None) -> Plan:
    """Plan a load; `seen` are the accelerators, default those that are there. `context` is the longest sequence.

    Raises `LoadFailed` for a file or options that cannot be used, and `OutOfMemory` when a second attempt cannot be
    any smaller than the first.
    """
    options = load.engine_options(LlamaOptions)
    if options.adapters:
        raise LoadFailed("options.adapters: adapters are for chats only")
    seen = devices.accelerators() if seen is None and load.manifest.device != "cpu" else seen or ()
    estimate = ScoringEstimate(load.path, options)
    try:
        model = estimate.model()
        choice, taken = _fit(load, options, estimate, seen)
        size = estimate.scoring(choice.target, cells(options, choice.context))
    finally:
        estimate.close()
    return Plan(
        bytes=taken,
        device=choice.target.pool if choice.target.devices else "cpu",
        context=choice.context,
        notes=tuple(_notes(load, options, choice.context, model.trained)),
        detail={
            "weights": model.weights,
            "cache": sum(size.cache.values()),
            "compute": sum(size.compute.values()),
            "trained_context": model.trained,
            "layers": model.layers,
            **devices.to_detail(choice.target, model.layers),
        },
        pools={one.pool: one.total for one in seen},
    )


def cells(options: LlamaOptions, longest: int) -> int:
    """Return the KV cells for a prefix and a batch after it, where no sequence is longer than `longest` tokens.

    A batch has `batch` tokens, or a single sequence.
    """
    return longest + options.batch


def _fit(
    load: Load, options: LlamaOptions, estimate: ScoringEstimate, seen: tuple[Device, ...]
) -> tuple[FitResult, dict[str, int]]:
    """Return devices and the longest sequence, and the bytes of it all by pool."""
    found = devices.candidates(load.manifest.device, seen)
    room = available(load, found)
    model = estimate.model()

    def weights(target: Target) -> dict[str, int]:
        return dict(Counter(estimate.weights(target)) + Counter({RAM: PROCESS}))

    def needed(target: Target, context: int, _: int) -> dict[str, int]:
        return dict(Counter(weights(target)) + Counter(estimate.scoring(target, cells(options, context)).total))

    request = FitRequest(
        context=None if load.manifest.context == "auto" else load.manifest.context,
        slots=1,
        layers=None if options.gpu_layers == "auto" else options.gpu_layers,
        attempt=load.attempt,
        trained=model.trained,
        model_layers=model.layers,
    )
    choice = MemoryFit(request, needed, weights, room).choose(layouts(options, found, room, seen))
    return choice, needed(choice.target, choice.context, 1)


def _notes(load: Load, options: LlamaOptions, longest: int, trained: int) -> Iterator[str]:
    yield f"inputs with their questions of up to {longest} tokens, {options.batch} more for questions side by side"
    if load.manifest.context == "auto" and longest < trained:
        yield f"{longest} tokens instead of the trained {trained}, to leave memory for others"
    elif load.manifest.context != "auto" and longest > trained:
        yield f"{longest} tokens are more than the {trained} the model was trained for"
    if load.manifest.slots != "auto":
        yield "slots has no meaning here: questions are computed side by side, requests in turns"
