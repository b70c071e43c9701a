"""Sentence embedding models on torch: items of all requests are batched, encoded, and pooled into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import numpy as np
import torch

from functions.engines.batching.batcher import Batcher
from functions.engines.batching.item import Item, size
from functions.engines.checkpoint import max_length, tokenizer
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence.layout import Layout
from functions.engines.checkpoint.sentence.output import SentenceItem, SentenceOutput, Vector
from functions.engines.checkpoint.sentence.sparse import Splade
from functions.engines.checkpoint.sentence.tasks import ColbertInputs, named_id, with_text_prompts
from functions.engines.checkpoint.tokenizer import FastTokenizer
from functions.engines.transformers import device as devices
from functions.engines.transformers import encoder as encoders
from functions.engines.transformers import memory, threads
from functions.engines.transformers import plan as planning
from functions.engines.transformers.encoder import Encoder
from functions.engines.transformers.numerics import PoolFn
from functions.engines.transformers.options import TransformersOptions
from functions.engines.transformers.sentence import layer_pooling
from functions.engines.transformers.sentence.head import SentenceHead
from functions.engines.transformers.sentence.layer_pooling import States
from functions.engines.transformers.sentence.pooling import pool
from functions.engines.transformers.weights import AUTO
from host.errors import LoadFailed, NotFinite
from host.function import RAM, Load, Plan, Progress

_SPLADE_TOKENS = 512
"""Tokens of a batch that becomes a logit for each token and word of the vocabulary: 60 MB for 30,000 words."""
_LAYERS = ("num_hidden_layers", "n_layers", "num_layers", "n_layer")
_HIDDEN = ("hidden_size", "dim", "d_model", "n_embd")
"""What architectures call these numbers in `config.json`."""
_COPIES = 3
"""Logits, and what is made of them before pooling."""


class SentenceModel:
    """An encoder with its head. `size` is the dense dimension, `longest` the most tokens, special ones included."""

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        encoder: Encoder,
        head: SentenceHead,
        tokens: FastTokenizer,
        options: TransformersOptions,
        tasks: ColbertInputs,
    ) -> None:
        self.layout = with_text_prompts(layout, tasks)
        self.tasks = tasks
        self.tokenizer = tokens
        self.size = head.size
        self.longest = plan.context or 0
        self._encoder = encoder
        self._head = head
        how = encoders.batcher_settings(options, plan, encoder)
        if isinstance(layout.sparse, Splade):
            how["padding"] = 1.0  # its head gives a logit for each word, also to padding
        self._batcher: Batcher[Item, SentenceOutput] = Batcher(
            self._compute,
            size,
            **how,
            is_out_of_memory=memory.is_out_of_memory,
            release=memory.release,
        )

    @staticmethod
    def plan(load: Load, layout: Layout) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        options, model = _read(load, layout)
        config = model.config()
        # max_seq_length of the model's own files replaces the tokenizer's bound, which may be smaller
        own = {} if layout.longest else model.mapping("tokenizer_config.json")
        longest, bound = max_length.longest(config, own, load.manifest.context, layout.longest)
        plan = planning.encoder(load, options, model, longest)
        if layout.layers is not None:
            plan = _with_layers(plan, config, load)
        if isinstance(layout.sparse, Splade):
            plan = _with_logits(plan, int(config.get("vocab_size") or 0), load)
        notes = (*plan.notes, f"inputs of up to {longest} tokens ({bound})", *layout.notes)
        return msgspec.structs.replace(plan, notes=notes)

    @classmethod
    def load(cls, load: Load, plan: Plan, layout: Layout, progress: Progress) -> Self:
        """Load tokenizer, weights and head; raises `LoadFailed` and `OutOfMemory`."""
        options, model = _read(load, layout)
        tokens = tokenizer.load(model, load.threads, lower=layout.lower, trusted=options.trust_remote_code)
        auto = "AutoModelForMaskedLM" if isinstance(layout.sparse, Splade) else AUTO
        states = layer_pooling.load(layout.layers, Folder(load.path), _number(model.config(), *_LAYERS))
        pool_fn = _check_pooling(layout, states)
        encoder = encoders.load(load, plan, options, model, progress, auto, tokens=tokens, pool_fn=pool_fn)
        hidden = getattr(encoder.model.config, "hidden_size", None)
        if not isinstance(hidden, int):
            raise LoadFailed(f"{type(encoder.model).__name__} has no hidden states for tokens: it cannot embed texts")
        head = SentenceHead(layout, Folder(load.path), hidden, encoder.device, _special(model, tokens), states)
        return cls(plan, layout, encoder, head, tokens, options, ColbertInputs(layout, model, tokens))

    async def vectors(self, items: Sequence[Item]) -> list[Vector]:
        """Return the dense vector of each item, in their order; raises what `outputs` raises."""
        return [output.dense for output in await self.outputs(items) if output.dense is not None]

    async def outputs(self, items: Sequence[Item]) -> list[SentenceOutput]:
        """Return the vectors of each item, in their order; raises `QueueFull`, `ShuttingDown`, `OutOfMemory`."""
        return await self._batcher.run(items)

    def detail(self) -> dict[str, Any]:
        """Return what was chosen, and by which file."""
        late = {"token_dimension": self._head.token_size} if self.layout.colbert is not None else {}
        return self.layout.detail(self.size) | self._encoder.detail() | late

    def close(self) -> None:
        """End both threads."""
        self._batcher.close()
        self.tokenizer.close()

    def _compute(self, items: Sequence[Item]) -> list[SentenceOutput]:
        """Return the vectors of one batch; runs in the compute thread."""
        expanded = [isinstance(item, SentenceItem) and item.attended is not None for item in items]
        if not any(expanded):
            return self._make_outputs(*self._encoder.forward(items), items)
        found: dict[int, SentenceOutput] = {}
        for attended, forward in ((False, self._encoder.forward), (True, self._forward_expanded)):
            places = [at for at, one in enumerate(expanded) if one is attended]
            if places:
                part = [items[at] for at in places]
                found.update(zip(places, self._make_outputs(*forward(part), part), strict=True))
        return [found[at] for at in range(len(items))]

    def _make_outputs(self, output: Any, mask: torch.Tensor, items: Sequence[Item]) -> list[SentenceOutput]:
        with torch.inference_mode():
            found = self._head(output, mask, items)
        if not all(_finite(one) for one in found):
            raise NotFinite(f"the model gave numbers that are not finite in {self._encoder.precision}")
        return found

    def _forward_expanded(self, items: Sequence[Item]) -> tuple[Any, torch.Tensor]:
        """Return the output for queries whose expansion tokens get a state but are not attended to (ColBERT)."""
        shape = (len(items), max(len(item.ids) for item in items))
        ids, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
        for row, item in enumerate(items):
            ids[row, : len(item.ids)] = torch.from_numpy(item.ids)
            attended = item.attended if isinstance(item, SentenceItem) else None
            mask[row, : len(item.ids) if attended is None else attended] = 1
        ids, mask = ids.to(self._encoder.device), mask.to(self._encoder.device)
        with torch.inference_mode():
            return self._encoder.model(input_ids=ids, attention_mask=mask), mask


def _check_pooling(layout: Layout, states: States) -> PoolFn | None:
    """Return what the check at load compares: vectors as this model pools them."""
    if not layout.pooling or isinstance(layout.sparse, Splade):
        return None
    return lambda output, mask: pool(states(output), mask, layout.pooling)


def _finite(output: SentenceOutput) -> bool:
    found = (output.dense, output.colbert, output.sparse[1] if output.sparse is not None else None)
    return all(bool(np.isfinite(part).all()) for part in found if part is not None)


def _read(load: Load, layout: Layout) -> tuple[TransformersOptions, Folder]:
    if layout.table is not None:
        raise LoadFailed("modules.json: a model without an encoder (StaticEmbedding) is served as embeddings only")
    options = load.engine_options(TransformersOptions)
    if layout.layers is not None and options.attention == "auto":
        options = msgspec.structs.replace(options, attention="sdpa")  # only the last layer gives packed states back
    if isinstance(layout.sparse, Splade) and options.batch_tokens == "auto":
        options = msgspec.structs.replace(options, batch_tokens=_SPLADE_TOKENS >> load.attempt)
    return options, Folder(load.path).inside(layout.encoder)


def _special(model: Folder, tokens: FastTokenizer) -> list[int]:
    """Return the ids that stand around texts or for what is no word."""
    named = (named_id(model, name, tokens) for name in ("cls_token", "eos_token", "pad_token", "unk_token"))
    return [*tokens.prefix, *tokens.suffix, *(one for one in named if one is not None)]


def _with_layers(plan: Plan, config: dict[str, Any], load: Load) -> Plan:
    """Return the plan with the bytes of a batch's states behind each layer, and of their mean."""
    count, hidden = _number(config, *_LAYERS) or 0, _number(config, *_HIDDEN) or 0
    return _with(plan, (count + 2) * hidden * 4, load)


def _with(plan: Plan, each: int, load: Load) -> Plan:
    """Return the plan with `each` bytes more for a token of the largest batches that are computed side by side."""
    longest = max(int(plan.detail["batch_tokens"]), plan.context or 0)  # an input of more than a batch runs alone
    extra = each * longest * threads.lanes(devices.choose(load.manifest.device), load.threads)
    pool = next((name for name in plan.bytes if name != RAM), RAM)
    return msgspec.structs.replace(plan, bytes={**plan.bytes, pool: plan.bytes[pool] + extra})


def _number(config: dict[str, Any], *names: str) -> int | None:
    return next((config[name] for name in names if isinstance(config.get(name), int)), None)


def _with_logits(plan: Plan, words: int, load: Load) -> Plan:
    """Return the plan with the bytes that a batch's logits take."""
    return _with(plan, words * 4 * _COPIES, load)


__all__ = ("SentenceItem", "SentenceModel", "SentenceOutput", "Vector")
