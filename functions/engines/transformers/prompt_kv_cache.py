"""LRU cache of prompt prefixes that many documents share: keys and values of each layer, within the planned memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch
from transformers import AutoConfig
from transformers.cache_utils import DynamicCache, DynamicLayer

from functions.engines.checkpoint.folder import Folder
from functions.engines.prefix_cache.prefix_index import PrefixIndex
from functions.engines.transformers import device as devices
from functions.engines.transformers import plan as planning
from functions.engines.transformers import precision
from functions.engines.transformers.options import TransformersOptions
from host.function import Load, Plan

State = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, both (1, heads, tokens, head size)."""

_MAX_CACHED_TOKENS = 8192
"""Tokens cached at most; on the CPU it is two batches' worth."""
_REACH = 4
"""A batch reads at most so many times its own tokens, its prefix counted for each of its inputs."""


class CachedPrompt:
    """The tokens before every document of one request, and their keys and values once computed."""

    __slots__ = ("closed", "state", "tokens")

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = list(tokens)
        self.state: State | None = None
        self.closed = False
        """The request is over: its state is not cached any more."""

    @property
    def cached(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.tokens)


class PromptKVCache:
    """States of prompt prefixes of up to `limit` tokens in all; the least recently used are evicted first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._index: PrefixIndex[CachedPrompt] = PrefixIndex()
        self._lock = threading.Lock()

    @property
    def tokens(self) -> int:
        """The tokens of all cached prefixes."""
        return self._index.size

    def state(self, prompt: CachedPrompt, compute: Callable[[list[int]], State]) -> State:
        """Return the prompt's state, computed if it is not cached; not cached if the prompt is dropped meanwhile."""
        with self._lock:
            if prompt.state is not None:
                self._index.use(prompt)
                return prompt.state
            for evicted in self._index.evict(self.limit - prompt.size):
                evicted.state = None
        state = compute(prompt.tokens)
        with self._lock:
            if not prompt.closed:
                prompt.state = state
                self._index.use(prompt)
        return state

    def drop(self, prompt: CachedPrompt) -> None:
        """Free the prompt's state, now or as soon as it is computed."""
        with self._lock:
            prompt.closed = True
            self._index.remove(prompt)
            prompt.state = None


def planned(plan: Plan, load: Load) -> Plan:
    """Return the plan with the bytes of cached prompts, and of a batch that reads one, added to it."""
    folder = Folder(load.path)
    config = folder.config()
    options = load.engine_options(TransformersOptions)
    device = devices.choose(load.manifest.device)
    wanted = precision.choose(load.manifest.quantization, device, config.get("dtype") or config.get("torch_dtype"))
    itemsize = (wanted.dtype if wanted.stated else wanted.first).itemsize
    batch = planning.batch_tokens(options, device, load.attempt)
    cached = min(2 * batch, _MAX_CACHED_TOKENS) if shares(_settings(config)) else 0
    reach = _REACH * batch if cached else 0
    layers, numbers, repeated = _sizes(config.get("text_config") or config)
    size = (cached * layers * numbers + reach * (numbers + repeated)) * 2 * itemsize
    pool = devices.pool(device)
    return msgspec.structs.replace(
        plan,
        bytes=plan.bytes | {pool: plan.bytes.get(pool, 0) + size},
        detail=plan.detail | {"starts": size, "start_tokens": cached, "reach_tokens": reach},
    )


def shares(settings: Any) -> bool:
    """Return whether a prefix may be computed once for all documents: only if every layer has full attention."""
    layers = [] if settings is None else DynamicCache(config=settings).layers
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


def _settings(config: Mapping[str, Any]) -> Any:
    """Return Transformers' configuration; None for an unknown model, which is an error of the load."""
    try:
        return AutoConfig.for_model(**config).get_text_config(decoder=True)
    except Exception:  # noqa: BLE001 - the load reports what is wrong with the file
        return None


def _sizes(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the layers, the size of a token's keys in a layer, and the same without grouped-query attention."""
    layers = int(config.get("num_hidden_layers") or config.get("n_layer") or 0)
    heads = int(config.get("num_attention_heads") or config.get("n_head") or 0)
    hidden = int(config.get("hidden_size") or config.get("n_embd") or 0)
    head = int(config.get("head_dim") or (hidden // heads if heads else 0))
    return layers, int(config.get("num_key_value_heads") or heads) * head, heads * head
