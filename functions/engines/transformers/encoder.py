"""Runs an encoder on torch: pads or packs tokenised items into a batch and returns the model's output and mask.

Pooling, classification heads and labels are applied by the callers."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

import numpy as np
import torch

from functions.engines.batching.item import Item
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.tokenizer import FastTokenizer
from functions.engines.transformers import device as devices
from functions.engines.transformers import memory, numerics, optimize, packing, precision, threads, weights
from functions.engines.transformers import plan as planning
from functions.engines.transformers.numerics import CheckOutput, PoolFn
from functions.engines.transformers.optimize import OptimizedModel
from functions.engines.transformers.options import TransformersOptions
from functions.engines.transformers.precision import Precision
from host.errors import LoadFailed
from host.function import Load, Plan, Progress

_PACKED_PADDING = 0.05
"""Cost of padding in packed batches, whose embeddings and heads are still padded; measured on MiniLM."""


class Encoder:
    """A model on its device. Call its methods from the compute threads only, or while loading."""

    def __init__(self, model: Any, device: torch.device, dtype: torch.dtype, threads: int = 1) -> None:
        self.model = model
        self.threads = threads
        self.device = device
        self.dtype = dtype
        self.packs = False
        """Batches run through the layers without padding."""
        self.precision = precision.name(dtype)
        self.precision_note = ""
        """The result of comparing the model with itself in fp32, as a sentence."""
        text = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
        self._pad: int | None = getattr(text, "pad_token_id", None)
        self._text = text
        self._takes_token_types = "token_type_ids" in inspect.signature(model.forward).parameters

    def take_model(self) -> Any:
        """Return the model and drop the reference to it, so that the caller can free it."""
        model, self.model = self.model, None
        return model

    def set_model(self, optimized: OptimizedModel) -> None:
        """Use the optimised model."""
        self.model, self.dtype, self.packs = optimized.model, optimized.precision.dtype, optimized.packed
        self.precision, self.precision_note = optimized.precision.name, optimized.note

    @property
    def stateless(self) -> bool:
        """Whether threads may share the model: a class of Transformers that changes no state in its forward pass."""
        settings = vars(self._text)
        rotary = str(settings.get("rope_parameters") or settings.get("rope_scaling") or "")
        moving = "dynamic" in rotary or "longrope" in rotary
        return self.packs and self._pad is not None and not moving and _is_library(self.model)

    @property
    def padding(self) -> float:
        """The cost of a padding token relative to a real one."""
        return _PACKED_PADDING if self.packs else 1.0

    def detail(self) -> dict[str, Any]:
        """Return what was chosen while loading, for `GET /v1/functions`."""
        notes: dict[str, Any] = {"precision": self.precision_note} if self.precision_note else {}
        if not _is_library(self.model):
            notes["remote_code"] = True
        return {
            "dtype": self.precision,
            "device": str(self.device),
            "architecture": type(self.model).__name__,
            "padding": "none" if self.packs else "to the longest of a batch",
            **notes,
        }

    def forward(self, items: Sequence[Item]) -> tuple[Any, torch.Tensor]:
        """Return the model's output and the mask, (items, tokens) of 0 and 1; padding is on the right."""
        return self._forward(self.model, items, packed=self.packs)

    def check_output(self, items: Sequence[Item], pool_fn: PoolFn | None, model: Any, *, packed: bool) -> CheckOutput:
        """Return the output of a model for the check's items, as it is compared."""
        with torch.inference_mode():
            return numerics.check_output(*self._forward(model, items, packed=packed), pool_fn)

    def _forward(self, model: Any, items: Sequence[Item], *, packed: bool) -> tuple[Any, torch.Tensor]:
        ids, mask, types = self._padded(items)
        extra = {"token_type_ids": types} if types is not None else {}
        lengths = [len(item.ids) for item in items]
        with torch.inference_mode(), contextlib.ExitStack() as stack:
            if packed:
                stack.enter_context(packing.packed(packing.Batch(lengths, mask)))
            return model(input_ids=ids, attention_mask=mask, **extra), mask

    def _padded(self, items: Sequence[Item]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        shape = (len(items), max(len(item.ids) for item in items))
        ids = np.full(shape, self._padding(items), dtype=np.int64)
        mask = np.zeros(shape, dtype=np.int64)
        typed = self._takes_token_types and any(item.types is not None for item in items)
        types = np.zeros(shape, dtype=np.int64) if typed else None
        for row, item in enumerate(items):
            count = len(item.ids)
            ids[row, :count] = item.ids
            mask[row, :count] = 1
            if types is not None and item.types is not None:
                types[row, :count] = item.types
        made = [None if part is None else torch.from_numpy(part).to(self.device) for part in (ids, mask, types)]
        return made[0], made[1], made[2]

    def _padding(self, items: Sequence[Item]) -> int:
        """Return the id to pad with.

        Decoders with a classification head find the last token by the padding id. Where the files name none, an id
        that no input of the batch ends with is chosen and set in the model's configuration.
        """
        if self._pad is not None:
            return self._pad
        ends = {int(item.ids[-1]) for item in items}
        chosen = next(number for number in range(len(ends) + 1) if number not in ends)
        self._text.pad_token_id = chosen
        return chosen


def load(
    load_: Load,
    plan: Plan,
    options: TransformersOptions,
    folder: Folder,
    progress: Progress,
    auto: str = weights.AUTO,
    *,
    tokens: FastTokenizer | None = None,
    pool_fn: PoolFn | None = None,
) -> Encoder:
    """Load the model that the plan is for, without a head or as Transformers' auto class `auto` makes it.

    With `tokens` the model is optimised for the CPU and compared with itself in fp32, by the vectors that `pool_fn`
    makes of its output; without, only the manifest's precision is applied. The number of embedding rows is passed to
    `tokens`, which refuses ids beyond it. Raises what `weights.load` raises, and `LoadFailed` when int8 changes the
    model's output too much or the tokenizer belongs to another model.
    """
    # Threads that have computed in parallel keep helpers of their own, and with more of those than cores OpenMP no
    # longer lets the compute thread's wait for each other by spinning. Those of a thread that ended are gone.
    with ThreadPoolExecutor(1, thread_name_prefix="load") as thread:
        return thread.submit(_load, load_, plan, options, folder, progress, auto, tokens, pool_fn).result()


def _load(
    load_: Load,
    plan: Plan,
    options: TransformersOptions,
    folder: Folder,
    progress: Progress,
    auto: str,
    tokens: FastTokenizer | None,
    pool_fn: PoolFn | None,
) -> Encoder:
    device = devices.choose(load_.manifest.device)
    config = folder.config()
    wanted = precision.choose(load_.manifest.quantization, device, config.get("dtype") or config.get("torch_dtype"))
    torch.set_num_threads(load_.threads)
    memory.raise_malloc_thresholds()
    read = functools.partial(_load_model, folder, device, wanted, options, auto)
    encoder = Encoder(read(progress), device, wanted.first, load_.threads)
    _check_positions(encoder.model, plan.context or 0)
    if tokens is not None:
        tokens.bound(_rows(encoder.model))
    if device.type == "cpu":
        items = [] if tokens is None else numerics.items(tokens, plan.context or 1)
        run_check = functools.partial(encoder.check_output, items, pool_fn)
        pack = options.attention == "auto"
        encoder.set_model(
            optimize.optimize(encoder.take_model(), wanted, run_check, lambda: read(_ignore_progress), pack=pack)
        )
    return encoder


class BatcherSettings(TypedDict):
    """The keyword arguments of a `Batcher` for an encoder."""

    budget: int
    overhead: int
    padding: float
    lanes: int
    express: int
    start: Callable[[], None]
    start_express: Callable[[], None]


def batcher_settings(options: TransformersOptions, plan: Plan, encoder: Encoder) -> BatcherSettings:
    """Return the planned settings; parallel lanes only for models that are known to be stateless."""
    tokens, overhead = budget(options, plan, encoder.device)
    lanes = threads.lanes(encoder.device, encoder.threads) if encoder.stateless else 1
    return BatcherSettings(
        budget=tokens,
        overhead=overhead,
        padding=encoder.padding,
        lanes=lanes,
        express=threads.EXPRESS if lanes > 1 else 0,
        start=threads.initializer(encoder.threads // lanes),
        start_express=threads.initializer(1),
    )


def budget(options: TransformersOptions, plan: Plan, device: torch.device) -> tuple[int, int]:
    """Return a batcher's token budget and overhead, as planned."""
    tokens = plan.detail.get("batch_tokens")
    return int(tokens or planning.batch_tokens(options, device)), planning.overhead(device)


def _load_model(
    folder: Folder,
    device: torch.device,
    wanted: Precision,
    options: TransformersOptions,
    auto: str,
    progress: Progress,
) -> Any:
    model = weights.load(
        folder,
        device=device,
        dtype=wanted.first,
        auto=auto,
        attention=options.attention,
        progress=progress,
        optional=lambda name: auto == weights.AUTO and name.startswith("pooler."),
        trusted=options.trust_remote_code,
    )
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False  # nothing is generated, so keys and values need not outlive their layer
    return model


def _rows(model: Any) -> int:
    """Return the number of token embeddings; `sys.maxsize` where the model does not expose them."""
    try:
        table = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return sys.maxsize
    return int(getattr(table, "num_embeddings", 0)) or sys.maxsize


def _is_library(model: Any) -> bool:
    return type(model).__module__.startswith("transformers.")


def _ignore_progress(stage: str, done: int = 0, total: int = 0) -> None:
    """Ignore progress: the second read must not count twice."""


def _check_positions(model: Any, longest: int) -> None:
    """Raise when inputs as long as planned would run past the position embeddings as they really are."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            if longest > module.num_embeddings - first:
                served = module.num_embeddings - first
                raise LoadFailed(
                    f"inputs of {longest} tokens were planned, but the positions serve {served}: set context"
                )
