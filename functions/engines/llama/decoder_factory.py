"""Builds a decoder from the manifest's options: slots, host cache, prefill budget and speculator."""

from __future__ import annotations

from pathlib import Path

import msgspec

from functions.engines.llama.decode.decoder import Decoder
from functions.engines.llama.memory import devices
from functions.engines.llama.memory.fit import SHARE
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions, drafts
from functions.engines.llama.prefix_cache.host_cache import HostCache
from functions.engines.llama.prefix_cache.slots import Slots
from functions.engines.llama.speculation import draft_model
from functions.engines.llama.speculation.draft_model import DraftModel
from functions.engines.llama.speculation.speculator import PromptLookup, Speculator
from host.errors import LoadFailed
from host.function import RAM, Load, Plan

HOST_CACHE = "kept_prefixes"
"""Key in the plan's detail: bytes for the host cache."""


def build_decoder(
    model: Model,
    context: Context,
    options: LlamaOptions,
    *,
    length: int,
    slots: int,
    host_cache: int = 0,
    speculator: Speculator | None = None,
) -> Decoder:
    """Return a decoder over the context, of which each slot holds `length` tokens.

    `host_cache` is the size of the host cache in bytes; 0 for none.
    """
    windowed = bool(model.window) and not options.sliding_window_full
    return Decoder(
        context,
        model.vocabulary,
        Slots(
            slots,
            context,
            reuse=options.prefix_reuse and not options.deterministic,
            shares=not model.recurrent and not windowed,
            window=model.window if windowed else 0,
            max_idle_tokens=max_idle_tokens(options, length),
            host_cache=HostCache(context, host_cache) if host_cache else None,
        ),
        length=length,
        chunk=None if options.chunk == "auto" else options.chunk,
        one_at_a_time=options.deterministic,
        speculator=speculator,
        draft_tokens=drafts(options),
    )


def max_idle_tokens(options: LlamaOptions, length: int) -> int:
    """Return how many tokens idle slots keep in all, for slots of `length` tokens."""
    if not options.prefix_reuse or options.deterministic:
        return 0
    return length if options.prefix_tokens == "auto" else options.prefix_tokens


def with_host_cache(chosen: Plan, options: LlamaOptions, load: Load) -> Plan:
    """Return the plan with the bytes of the host cache added to RAM.

    At most half of what the budget leaves, so that other models fit too; none for models on accelerators, where copying
    states is slow.
    """
    taken, slots, context = dict(chosen.bytes), chosen.slots, chosen.context or 0
    host_cache = 0
    if chosen.device == "cpu" and context:
        host_cache = int(chosen.detail.get("cache", 0)) * max_idle_tokens(options, context) // (context * slots)
        left = load.memory.get(RAM, 2 * host_cache + taken[RAM]) - taken[RAM]
        host_cache = max(0, min(host_cache, left // SHARE))
        taken[RAM] += host_cache
    return msgspec.structs.replace(chosen, bytes=taken, detail={**chosen.detail, HOST_CACHE: host_cache})


def make_speculator(model: Model, options: LlamaOptions, load: Load, plan: Plan) -> Speculator | None:
    """Return the speculator, None without speculation. Raises `LoadFailed` and `OutOfMemory`."""
    if options.speculation == "off":
        return None
    if model.recurrent or (model.window and not options.sliding_window_full):
        raise LoadFailed(_CANNOT.format(options.speculation))
    if options.draft is None:
        return PromptLookup()
    return DraftModel.open(
        draft_model.find(options.draft, Path(load.base)),
        options,
        devices.from_detail(plan.detail),
        vocabulary=model.vocabulary,
        length=plan.context or model.trained,
        slots=plan.slots,
        threads=max(1, load.threads),
    )


_CANNOT = (
    "`speculation: {}` does not work with this model: rejected tokens must be removed, and its memory (a state, or a "
    "sliding window) cannot be cut. Set `speculation: off`, or for a sliding window `sliding_window_full: true`."
)
