"""Plans the load of a pooled model: devices, pooling and the longest input, and the bytes in each memory pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from functions.engines.llama.memory import devices
from functions.engines.llama.memory.device_split import layouts
from functions.engines.llama.memory.devices import Device, Target
from functions.engines.llama.memory.fit import FitRequest, FitResult, MemoryFit
from functions.engines.llama.memory.plan import PROCESS, available
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.pooled import token_types
from functions.engines.llama.pooled.context import batch, sequences, uses_token_types
from functions.engines.llama.pooled.estimate import PooledEstimate
from functions.engines.llama.pooled.pooling import ModelTraits, Pooling, Purpose, choose
from host.errors import LoadFailed, ManifestError
from host.function import RAM, Load, Plan


def make(load: Load, purpose: Purpose, seen: tuple[Device, ...] | None = None) -> Plan:
    """Plan a load; `seen` are the accelerators, default those that are there.

    Raises `LoadFailed` for a file or options that cannot be used, and `OutOfMemory` when a second attempt cannot be
    any smaller than the first.
    """
    options = load.engine_options(LlamaOptions)
    if options.adapters:
        raise LoadFailed("options.adapters: adapters are for chats only")
    seen = devices.accelerators() if seen is None and load.manifest.device != "cpu" else seen or ()
    estimate = PooledEstimate(load.path, options)
    try:
        model, known = estimate.model(), estimate.traits()
        pooling = choose(known, options.pooling, purpose)
        choice, taken = _fit(load, options, estimate, pooling, seen)
        size = estimate.pooled(choice.target, pooling, choice.context)
    finally:
        estimate.close()
    return Plan(
        bytes=taken,
        device=choice.target.pool if choice.target.devices else "cpu",
        context=choice.context,
        notes=tuple(_notes(load, options, known, pooling, choice.context)),
        detail={
            "weights": model.weights,
            "cache": sum(size.cache.values()),
            "compute": sum(size.compute.values()),
            "trained_context": known.trained,
            "layers": model.layers,
            "pooling": pooling.kind,
            "batch_tokens": options.batch,
            **devices.to_detail(choice.target, model.layers),
        },
        pools={one.pool: one.total for one in seen},
    )


def _fit(
    load: Load, options: LlamaOptions, estimate: PooledEstimate, pooling: Pooling, seen: tuple[Device, ...]
) -> tuple[FitResult, dict[str, int]]:
    """Return devices and the longest input, and the bytes of it all by pool."""
    found = devices.candidates(load.manifest.device, seen)
    room = available(load, found)
    trained = estimate.traits().trained

    def weights(target: Target) -> dict[str, int]:
        return dict(Counter(estimate.weights(target)) + Counter({RAM: PROCESS}))

    def needed(target: Target, context: int, _: int) -> dict[str, int]:
        return dict(Counter(weights(target)) + Counter(estimate.pooled(target, pooling, context).total))

    request = FitRequest(
        context=_stated(load, trained),
        slots=1,
        layers=None if options.gpu_layers == "auto" else options.gpu_layers,
        attempt=load.attempt,
        trained=trained,
        model_layers=estimate.model().layers,
    )
    choice = MemoryFit(request, needed, weights, room).choose(layouts(options, found, room, seen))
    return choice, needed(choice.target, choice.context, 1)


def _stated(load: Load, trained: int) -> int | None:
    """Return the context that the manifest states, None where it leaves it open; the model has no positions beyond."""
    context = load.manifest.context
    if context == "auto":
        return None
    if context > trained:
        raise ManifestError(
            f"context is {context}, but the model takes at most {trained} tokens (its positions, in the file's header)",
            key="context",
        )
    return context


def _notes(load: Load, options: LlamaOptions, known: ModelTraits, pooling: Pooling, longest: int) -> Iterator[str]:
    yield f"pooling: {pooling.kind} ({pooling.why})"
    together = f"batches of up to {options.batch} tokens of {sequences(known)} inputs"
    yield f"inputs of up to {longest} tokens, {together}"
    if batch(options, pooling, longest) > options.batch:
        yield f"an input is computed at once: one of {longest} tokens makes a batch larger than `batch` by itself"
    if longest < known.trained and load.manifest.context == "auto":
        yield f"{longest} tokens instead of the trained {known.trained}, to leave memory for others"
    if load.manifest.slots != "auto":
        yield "slots has no meaning here: inputs are merged into batches"
    if uses_token_types(known, pooling) and token_types.has_token_types(Path(load.path)):
        yield "the two texts of a pair have token types, whose embeddings are read from the file"
