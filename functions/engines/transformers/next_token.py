"""Scores yes or no by a causal language model's next-token logits, for documents that share a prompt prefix.

The prefix (instruction and query) is prefilled once for all documents of a request, and its KV cache is shared by
every batch. Of the output layer only the rows of the answers are computed, for each input's last token.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from functions.engines.batching.batcher import Batcher
from functions.engines.batching.item import Ids
from functions.engines.transformers import encoder as encoders
from functions.engines.transformers import memory, precision, prompt_kv_cache
from functions.engines.transformers.encoder import Encoder
from functions.engines.transformers.options import TransformersOptions
from functions.engines.transformers.prompt_kv_cache import CachedPrompt, PromptKVCache, State
from host.errors import LoadFailed, NotFinite
from host.function import Plan

_UNSERVED = ("logit_scale", "logits_scaling", "output_multiplier")
"""Settings of models that change logits before the softmax in ways of their own."""


class Suffix(msgspec.Struct, frozen=True):
    """One input: the shared prefix, and the ids after it."""

    start: CachedPrompt
    ids: Ids


class _SharedPrefixLayer(DynamicLayer):  # type: ignore[misc]  # Transformers is not typed
    """One layer's cached keys and values, shared by all inputs of a batch. New ones are not stored."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.is_initialized = True

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        count = keys.shape[0]
        before, cached = self.keys.expand(count, -1, -1, -1), self.values.expand(count, -1, -1, -1)
        return torch.cat([before, keys], dim=-2), torch.cat([cached, values], dim=-2)


class NextTokenScorer:
    """Implements `functions.rerank.yes_no.Answers`: the log odds of yes against no.

    Without a token for no, the score is the logit of yes.
    """

    def __init__(self, plan: Plan, encoder: Encoder, options: TransformersOptions, yes: int, no: int | None) -> None:
        model = encoder.model
        self._model = model
        self._decoder = model.get_decoder()
        self._device = encoder.device
        self._dtype = encoder.dtype
        head = model.get_output_embeddings()
        answers = [yes] if no is None else [yes, no]
        self._rows = head.weight[answers].float()
        self._bias = None if getattr(head, "bias", None) is None else head.bias[answers].float()
        settings = model.config.get_text_config(decoder=True)
        for name in _UNSERVED:
            if getattr(settings, name, None) not in (None, 1, 1.0):
                raise LoadFailed(f"{type(model).__name__} scales its logits by {name}, which is not served")
        self._softcap: float | None = getattr(settings, "final_logit_softcapping", None)
        self._cache_argument = (
            "cache" if "cache" in inspect.signature(self._decoder.forward).parameters else "past_key_values"
        )
        self._starts = PromptKVCache(int(plan.detail["start_tokens"]) if prompt_kv_cache.shares(settings) else 0)
        self._reach = int(plan.detail["reach_tokens"])
        budget, overhead = encoders.budget(options, plan, encoder.device)
        self._batcher: Batcher[Suffix, float] = Batcher(
            self._compute,
            self._size,
            budget=budget,
            overhead=overhead,
            is_out_of_memory=memory.is_out_of_memory,
            release=memory.release,
        )

    async def odds(self, start: Sequence[int], suffixes: Sequence[Ids]) -> list[float]:
        """Return the answer behind each suffix, in their order; raises `QueueFull`, `ShuttingDown`, `OutOfMemory`."""
        shared = CachedPrompt(start)
        try:
            return await self._batcher.run([Suffix(shared, ids) for ids in suffixes])
        finally:
            self._starts.forget(shared)

    def shares(self, tokens: int) -> bool:
        """Return whether a prefix of `tokens` is cached: one that memory was planned for."""
        return 0 < tokens <= self._starts.room

    def detail(self) -> dict[str, Any]:
        """Return what was chosen."""
        kind = type(self._model).__name__
        return {"architecture": kind, "device": str(self._device), "dtype": precision.name(self._dtype)}

    def close(self) -> None:
        """End the thread."""
        self._batcher.close()

    def _size(self, item: Suffix) -> int:
        return len(item.ids) if self.shares(len(item.start.ids)) else len(item.start.ids) + len(item.ids)

    def _compute(self, items: Sequence[Suffix]) -> list[float]:
        """Return the answers of a batch; runs in the compute thread."""
        found: list[float] = [0.0] * len(items)
        groups: dict[CachedPrompt | None, list[int]] = {}
        for at, item in enumerate(items):
            groups.setdefault(item.start if self.shares(len(item.start.ids)) else None, []).append(at)
        with torch.inference_mode():
            for start, places in groups.items():
                together = [items[at] for at in places]
                answers = self._without_cache(together) if start is None else self._after_prefix(start, together)
                for at, answer in zip(places, answers, strict=True):
                    found[at] = answer
        return found

    def _after_prefix(self, start: CachedPrompt, items: Sequence[Suffix]) -> list[float]:
        """Compute what follows a start that all items share, so many at once as its keys may be read by."""
        state = self._starts.state(start, self._prefill)
        most = max(1, self._reach // (len(start.ids) + max(len(item.ids) for item in items)))
        found: list[float] = []
        for begin in range(0, len(items), most):
            rows = [item.ids.tolist() for item in items[begin : begin + most]]
            cache = Cache(layers=[_SharedPrefixLayer(keys, values) for keys, values in state])
            before = torch.ones((len(rows), len(start.ids)), dtype=torch.long)
            found += self._last(rows, before, {self._cache_argument: cache, "use_cache": True})
        return found

    def _without_cache(self, items: Sequence[Suffix]) -> list[float]:
        rows = [[*item.start.ids, *item.ids.tolist()] for item in items]
        return self._last(rows, torch.ones((len(rows), 0), dtype=torch.long), {"use_cache": False})

    def _prefill(self, ids: list[int]) -> State:
        cache = DynamicCache(config=self._model.config)
        given = {self._cache_argument: cache, "use_cache": True}
        self._decoder(input_ids=torch.tensor([ids], device=self._device), **given)
        return [(layer.keys, layer.values) for layer in cache.layers]

    def _last(self, rows: list[list[int]], before: torch.Tensor, given: dict[str, Any]) -> list[float]:
        """Return the answer at each row's last token; rows are padded on the right, behind what anybody looks at."""
        lengths = torch.tensor([len(row) for row in rows])
        longest = int(lengths.max())
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.cat([before, (torch.arange(longest) < lengths.unsqueeze(1)).long()], dim=1)
        places = torch.arange(before.shape[1], before.shape[1] + longest).unsqueeze(0)
        output = self._decoder(
            input_ids=ids.to(self._device),
            attention_mask=mask.to(self._device),
            position_ids=places.to(self._device),
            **given,
        )
        last = output.last_hidden_state[torch.arange(len(rows)), (lengths - 1).to(self._device)].float()
        logits = torch.nn.functional.linear(last, self._rows, self._bias)
        if self._softcap:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        odds = logits[:, 0] - logits[:, 1] if logits.shape[1] == 2 else logits[:, 0]
        if not bool(torch.isfinite(odds).all()):
            raise NotFinite(f"the model gave numbers that are not finite in {self._dtype}")
        return [float(number) for number in odds.cpu()]
