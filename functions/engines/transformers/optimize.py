"""Optimises a model for the CPU while loading: packed batches, prepacked and fused linear layers, bf16 or int8.

Each step is compared with the model as it was loaded, and undone where the output differs too much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import torch

from functions.engines.transformers import fusion, linear, memory, numerics, packing
from functions.engines.transformers.fusion import LinearActivation
from functions.engines.transformers.numerics import Bounds, CheckOutput
from functions.engines.transformers.precision import FP32, Precision
from host.errors import LoadFailed


class CheckRunner(Protocol):
    """Runs a model on the check texts, packed or padded; raises what the model raises."""

    def __call__(self, model: Any, *, packed: bool) -> CheckOutput: ...  # noqa: D102


class OptimizedModel(msgspec.Struct, kw_only=True, frozen=True):
    """The optimised model and how it is to be run."""

    model: Any
    precision: Precision
    packed: bool = False
    """It computes packed batches."""
    prepacked: bool = False
    """Its weights are in oneDNN's packed layout, or int8."""
    note: str = ""
    """The result of the precision check, as a sentence."""


def optimize(
    model: Any, wanted: Precision, run_check: CheckRunner, reload: Callable[[], Any], *, pack: bool = True
) -> OptimizedModel:
    """Return the model in the wanted precision, or in fp32 where an automatically chosen one changes it too much.

    The model comes in `wanted.first`; `reload` reads it again. Raises `LoadFailed` when the manifest's precision cannot
    be used, and for a model with non-finite output.
    """
    with fusion.recording(model) as pairs:
        before = _run(run_check, model, packed=False)
    if before is None:
        return _unchecked(model, wanted)
    if not bool(torch.isfinite(before.rows).all()):
        raise LoadFailed("the model's numbers are not finite for plain sentences: its file is broken")
    packs = pack and _try_packing(model, before, run_check)
    if not wanted.checked:
        return _try_prepacking(model, wanted, before, run_check, reload, packs=packs, pairs=pairs)
    bounds = numerics.INT8 if wanted.int8 else numerics.BF16
    _cast(model, wanted)
    prepacked = _prepack(model, wanted, pairs)
    after = _run(run_check, model, packed=packs)
    if after is None and not wanted.int8:
        model, prepacked = _reload_cast(reload, wanted, packs=packs), False
        after = _run(run_check, model, packed=packs)
    fits, found = _within(before, after, bounds)
    if wanted.stated and not wanted.int8 and (after is None or not bool(torch.isfinite(after.rows).all())):
        raise LoadFailed(f"the model cannot be computed in {wanted.name}: leave quantization out", param="quantization")
    if fits or (wanted.stated and not wanted.int8):
        found = f"{wanted.name}: {found}" if fits else f"{wanted.name} as the manifest says, although: {found}"
        return OptimizedModel(model=model, precision=wanted, packed=packs, prepacked=prepacked, note=found)
    if wanted.int8:
        raise LoadFailed(f"the model does not survive int8: {found}; take bf16 or fp32", param="quantization")
    del model
    plain = _try_prepacking(_reload(reload, packs=packs), FP32, before, run_check, reload, packs=packs, pairs=pairs)
    return msgspec.structs.replace(plain, note=f"bf16 refused: {found}; fp32 instead")


def _unchecked(model: Any, wanted: Precision) -> OptimizedModel:
    """Return a model that cannot be compared, as it takes more than texts: in the stated precision or as loaded."""
    why = "not compared with fp32: the model does not take texts alone"
    if not wanted.checked:
        return OptimizedModel(model=model, precision=wanted)
    if not wanted.stated:
        return OptimizedModel(model=model, precision=FP32, note=f"fp32, as bf16 was {why}")
    _cast(model, wanted)
    prepacked = _prepack(model, wanted, ()) if wanted.int8 else False
    return OptimizedModel(model=model, precision=wanted, prepacked=prepacked, note=f"{wanted.name}, {why}")


def _try_packing(model: Any, before: CheckOutput, run_check: CheckRunner) -> bool:
    """Prepare the model for packed batches; return whether its output is unchanged."""
    if not packing.prepare(model):
        return False
    fits, _ = _within(before, _run(run_check, model, packed=True), numerics.SAME)
    return fits


def _try_prepacking(
    model: Any,
    wanted: Precision,
    before: CheckOutput,
    run_check: CheckRunner,
    reload: Callable[[], Any],
    *,
    packs: bool,
    pairs: Sequence[LinearActivation],
) -> OptimizedModel:
    """Return an fp32 model with prepacked weights, or reloaded where that changes its output."""
    if not _prepack(model, wanted, pairs):
        return OptimizedModel(model=model, precision=wanted, packed=packs)
    fits, _ = _within(before, _run(run_check, model, packed=packs), numerics.SAME)
    if fits:
        return OptimizedModel(model=model, precision=wanted, packed=packs, prepacked=True)
    del model
    return OptimizedModel(model=_reload(reload, packs=packs), precision=wanted, packed=packs)


def _reload(reload: Callable[[], Any], *, packs: bool) -> Any:
    model = reload()
    if packs:
        packing.prepare(model)
    return model


def _reload_cast(reload: Callable[[], Any], wanted: Precision, *, packs: bool) -> Any:
    model = _reload(reload, packs=packs)
    _cast(model, wanted)
    return model


def _cast(model: Any, wanted: Precision) -> None:
    """Cast parameters one by one. Buffers stay: rotary frequencies are meant to be fp32."""
    if wanted.dtype is torch.float32:
        return
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(wanted.dtype)


def _prepack(model: Any, wanted: Precision, pairs: Sequence[LinearActivation]) -> bool:
    """Prepack linear layers and fuse activations, or quantise to int8; False where torch cannot."""
    if not wanted.int8 and not linear.can_prepack(wanted.dtype):
        return False
    try:
        with torch.no_grad():
            replaced = linear.replace(model, linear.Int8Linear if wanted.int8 else linear.PrepackedLinear)
            fusion.fuse(model, pairs)
            return replaced > 0
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        if memory.is_out_of_memory(error):
            raise
        if wanted.int8:
            raise LoadFailed(f"int8 is not served by this build of torch: {error}", param="quantization") from error
        raise LoadFailed(f"the weights cannot be laid out for this processor: {error}") from error


def _run(run_check: CheckRunner, model: Any, *, packed: bool) -> CheckOutput | None:
    """Return the model's output; None where it raises anything but out of memory."""
    try:
        return run_check(model, packed=packed)
    except Exception as error:
        if memory.is_out_of_memory(error):
            raise
        return None


def _within(before: CheckOutput, after: CheckOutput | None, bounds: Bounds) -> tuple[bool, str]:
    if after is None:
        return False, "the model cannot be computed in it"
    difference = numerics.compare(before, after)
    return difference.within(bounds), difference.describe(bounds)
