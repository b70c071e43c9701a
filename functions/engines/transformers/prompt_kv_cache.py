"""PromptKVCache of prompts that many documents share: their keys and values, kept as long as planned memory has room.

It knows tokens and bytes, and neither requests nor what a model says.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch
from transformers import AutoConfig
from transformers.cache_utils import DynamicCache, DynamicLayer

from functions.engines.checkpoint.folder import Folder
from functions.engines.transformers import device as devices
from functions.engines.transformers import plan as planning
from functions.engines.transformers import precision
from functions.engines.transformers.options import TransformersOptions
from host.function import Load, Plan

State = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, (1, heads, tokens, numbers) each."""

_KEPT_MAX = 8192
"""Tokens of starts kept at once, at most; on the CPU it is two batches' worth."""
_REACH = 4
"""A batch reads at most so many times its own tokens, its start counted for each of its inputs."""


class CachedPrompt:
    """The tokens that stand before every document of one request, and what the model made of them."""

    __slots__ = ("gone", "ids", "state")

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = list(ids)
        self.state: State | None = None
        self.gone = False
        """Nobody asks for it any more."""


class PromptKVCache:
    """Keeps what starts became for up to `room` tokens in all; the one that was not used for longest goes first."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._kept: OrderedDict[CachedPrompt, None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def tokens(self) -> int:
        """The tokens of all starts that are kept."""
        return sum(len(start.ids) for start in self._kept)

    def state(self, start: CachedPrompt, compute: Callable[[list[int]], State]) -> State:
        """Return what the start became, computed now where it is not kept; one forgotten meanwhile is not kept."""
        with self._lock:
            found = start.state
            if found is not None:
                self._kept.move_to_end(start)
                return found
            while self._kept and self.tokens + len(start.ids) > self.room:
                self._kept.popitem(last=False)[0].state = None
        made = compute(start.ids)
        with self._lock:
            if not start.gone:
                start.state = made
                self._kept[start] = None
        return made

    def forget(self, start: CachedPrompt) -> None:
        """Give its memory back, also where it is being computed."""
        with self._lock:
            start.gone = True
            self._kept.pop(start, None)
            start.state = None


def planned(plan: Plan, load: Load) -> Plan:
    """Return the plan with the bytes of kept starts, and of a batch that reads one, added to it."""
    folder = Folder(load.path)
    config = folder.config()
    options = load.engine_options(TransformersOptions)
    device = devices.choose(load.manifest.device)
    wanted = precision.choose(load.manifest.quantization, device, config.get("dtype") or config.get("torch_dtype"))
    itemsize = (wanted.dtype if wanted.stated else wanted.first).itemsize
    batch = planning.batch_tokens(options, device, load.attempt)
    kept = min(2 * batch, _KEPT_MAX) if shares(_settings(config)) else 0
    reach = _REACH * batch if kept else 0
    layers, numbers, repeated = _sizes(config.get("text_config") or config)
    size = (kept * layers * numbers + reach * (numbers + repeated)) * 2 * itemsize
    pool = devices.pool(device)
    return msgspec.structs.replace(
        plan,
        bytes=plan.bytes | {pool: plan.bytes.get(pool, 0) + size},
        detail=plan.detail | {"starts": size, "start_tokens": kept, "reach_tokens": reach},
    )


def shares(settings: Any) -> bool:
    """Say whether what stands before documents may be computed once: only where every layer sees all of it."""
    layers = [] if settings is None else DynamicCache(config=settings).layers
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


def _settings(config: Mapping[str, Any]) -> Any:
    """Return Transformers' configuration; None for a model that it does not know, which the load tells."""
    try:
        return AutoConfig.for_model(**config).get_text_config(decoder=True)
    except Exception:  # noqa: BLE001 - whatever is wrong with the file, the load says it better
        return None


def _sizes(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return layers, numbers of a token's keys in a layer, and the same where each query has keys of its own."""
    layers = int(config.get("num_hidden_layers") or config.get("n_layer") or 0)
    heads = int(config.get("num_attention_heads") or config.get("n_head") or 0)
    hidden = int(config.get("hidden_size") or config.get("n_embd") or 0)
    head = int(config.get("head_dim") or (hidden // heads if heads else 0))
    return layers, int(config.get("num_key_value_heads") or heads) * head, heads * head
