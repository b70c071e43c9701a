"""Yes/no scoring with a causal language model on torch: the logits of two answer tokens after each document.

The shared prefix (prompt, instruction, query) is computed once for all documents of a request, and every batch reads
its keys and values. Only the answers' rows of the output layer are computed, for each input's last token.
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


class NextTokenItem(msgspec.Struct, frozen=True):
    """One input: a shared prefix, and the tokens after it."""

    prompt: CachedPrompt
    ids: Ids


class _Shared(DynamicLayer):  # type: ignore[misc]  # Transformers is not typed
    """A layer's keys and values of a prefix, read by all inputs of a batch; what the inputs add is not cached."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.is_initialized = True

    def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        count = keys.shape[0]
        before, held = self.keys.expand(count, -1, -1, -1), self.values.expand(count, -1, -1, -1)
        return torch.cat([before, keys], dim=-2), torch.cat([held, values], dim=-2)


class NextTokenScorer:
    """See `functions.rerank.yes_no.YesNoModel`. An answer is the log of the odds of yes against no.

    For a model that has no token for no it is the logit of yes.
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
        self._cap: float | None = getattr(settings, "final_logit_softcapping", None)
        self._word = "cache" if "cache" in inspect.signature(self._decoder.forward).parameters else "past_key_values"
        self._prompts = PromptKVCache(int(plan.detail["start_tokens"]) if prompt_kv_cache.shares(settings) else 0)
        self._reach = int(plan.detail["reach_tokens"])
        budget, overhead = encoders.budget(options, plan, encoder.device)
        self._batcher: Batcher[NextTokenItem, float] = Batcher(
            self._compute,
            self._size,
            budget=budget,
            overhead=overhead,
            is_out_of_memory=memory.is_out_of_memory,
            release=memory.release,
        )

    async def odds(self, prefix: Sequence[int], suffixes: Sequence[Ids]) -> list[float]:
        """Return the log odds of yes after each suffix; raises `QueueFull`, `ShuttingDown`, `OutOfMemory`."""
        shared = CachedPrompt(prefix)
        try:
            return await self._batcher.run([NextTokenItem(shared, ids) for ids in suffixes])
        finally:
            self._prompts.drop(shared)

    def shares(self, tokens: int) -> bool:
        """Return whether a prefix of so many tokens is cached: one that fits into the planned memory."""
        return 0 < tokens <= self._prompts.limit

    def detail(self) -> dict[str, Any]:
        """Return what was chosen."""
        kind = type(self._model).__name__
        return {"architecture": kind, "device": str(self._device), "dtype": precision.name(self._dtype)}

    def close(self) -> None:
        """End the thread."""
        self._batcher.close()

    def _size(self, item: NextTokenItem) -> int:
        return len(item.ids) if self.shares(len(item.prompt.tokens)) else len(item.prompt.tokens) + len(item.ids)

    def _compute(self, items: Sequence[NextTokenItem]) -> list[float]:
        """Return the answers of a batch; runs in the compute thread."""
        found: list[float] = [0.0] * len(items)
        groups: dict[CachedPrompt | None, list[int]] = {}
        for at, item in enumerate(items):
            groups.setdefault(item.prompt if self.shares(len(item.prompt.tokens)) else None, []).append(at)
        with torch.inference_mode():
            for prompt, places in groups.items():
                together = [items[at] for at in places]
                answers = self._whole(together) if prompt is None else self._behind(prompt, together)
                for at, answer in zip(places, answers, strict=True):
                    found[at] = answer
        return found

    def _behind(self, prompt: CachedPrompt, items: Sequence[NextTokenItem]) -> list[float]:
        """Compute the inputs after a prefix that all of them share, within the limit on the keys that a batch reads."""
        state = self._prompts.state(prompt, self._prefill)
        most = max(1, self._reach // (len(prompt.tokens) + max(len(item.ids) for item in items)))
        found: list[float] = []
        for begin in range(0, len(items), most):
            rows = [item.ids.tolist() for item in items[begin : begin + most]]
            cache = Cache(layers=[_Shared(keys, values) for keys, values in state])
            before = torch.ones((len(rows), len(prompt.tokens)), dtype=torch.long)
            found += self._last(rows, before, {self._word: cache, "use_cache": True})
        return found

    def _whole(self, items: Sequence[NextTokenItem]) -> list[float]:
        rows = [[*item.prompt.tokens, *item.ids.tolist()] for item in items]
        return self._last(rows, torch.ones((len(rows), 0), dtype=torch.long), {"use_cache": False})

    def _prefill(self, ids: list[int]) -> State:
        cache = DynamicCache(config=self._model.config)
        given = {self._word: cache, "use_cache": True}
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
        if self._cap:
            logits = torch.tanh(logits / self._cap) * self._cap
        odds = logits[:, 0] - logits[:, 1] if logits.shape[1] == 2 else logits[:, 0]
        if not bool(torch.isfinite(odds).all()):
            raise NotFinite(f"the model gave numbers that are not finite in {self._dtype}")
        return [float(number) for number in odds.cpu()]
