"""Static embedding models: a text becomes the mean of its tokens' rows of a table, or its tokens' weights.

There is no encoder: sentence-transformers' StaticEmbedding (also as model2vec saves it) and SparseStaticEmbedding. The
interface is that of `SentenceModel`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
import safetensors
import safetensors.torch
import torch

from functions.engines.batching.batcher import Batcher
from functions.engines.batching.item import Item, size
from functions.engines.checkpoint import max_length as max_lengths
from functions.engines.checkpoint import tokenizer
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence.layout import Layout
from functions.engines.checkpoint.sentence.output import SentenceOutput, Vector
from functions.engines.checkpoint.sentence.sparse import StaticSparse
from functions.engines.checkpoint.tokenizer import FastTokenizer
from functions.engines.transformers import device as devices
from functions.engines.transformers import memory
from functions.engines.transformers.options import TransformersOptions
from functions.engines.transformers.sentence import layers
from functions.engines.transformers.sentence.sparse_pooling import top_weights
from host.errors import LoadFailed, NotFinite
from host.function import RAM, Load, Plan, Progress

UNBOUNDED = 1 << 20
"""Tokens of an input where no file says how many: a mean has no last position."""
_BATCH = 65_536
_RUNTIME = 48 << 20
"""Tokenizer, allocator and thread stacks."""
_CUDA_CONTEXT = 512 << 20
_NAMES = {"dense": ("embedding.weight", "embeddings"), "sparse": ("weight",)}
"""Sentence-transformers' names of the tensor, and model2vec's, which may have `mapping` and `weights` besides."""


class StaticEmbeddingModel:
    """A table and the modules after it. `size` is the dense dimension, `longest` the most tokens of an input."""

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        table: torch.Tensor,
        after: tuple[list[layers.Layer], int],
        tokens: FastTokenizer,
        options: TransformersOptions,
    ) -> None:
        self.layout = layout
        self.tokenizer = tokens
        self.longest = plan.context or UNBOUNDED
        self._table = table
        self._layers, self.size = after
        budget = _BATCH if options.batch_tokens == "auto" else options.batch_tokens
        self._batcher: Batcher[Item, SentenceOutput] = Batcher(
            self._compute,
            size,
            budget=budget,
            overhead=None,
            is_out_of_memory=memory.is_out_of_memory,
            release=memory.release,
        )

    @staticmethod
    def plan(load: Load, layout: Layout) -> Plan:
        """Read the model's small files and the header of its weights; raises `LoadFailed`."""
        _, model = _read(load, layout)
        device = devices.choose(load.manifest.device)
        longest, bound = _longest(load, model, layout)
        shard = _single_file(model)
        rows, numbers = _shape(shard, layout)
        table = rows * numbers * 4
        most = table + model.weights(4) + _RUNTIME
        pools = {devices.pool(device): table + _CUDA_CONTEXT, RAM: most} if device.type == "cuda" else {RAM: most}
        return Plan(
            bytes=pools,
            device=str(device),
            context=longest,
            notes=(
                f"a table of {rows} tokens in fp32 on {device}",
                f"inputs of up to {longest} tokens ({bound})",
                *layout.notes,
            ),
            detail={"weights": table, "dtype": "fp32"},
            pools=devices.pools(device),
        )

    @classmethod
    def load(cls, load: Load, plan: Plan, layout: Layout, progress: Progress) -> Self:
        """Load tokenizer and table; raises `LoadFailed`."""
        options, model = _read(load, layout)
        shard = _single_file(model)
        total = int(plan.detail.get("weights") or 0)
        progress("weights", 0, total)
        torch.set_num_threads(load.threads)
        device = devices.choose(load.manifest.device)
        table = _loaded(shard, layout).to(device)
        progress("weights", total, total)
        numbers = table.shape[1] if table.dim() == 2 else 0
        after = layers.load(layout.steps, Folder(load.path), numbers, device)
        tokens = tokenizer.load(model, load.threads, framed=False)
        if tokens.vocabulary > len(table):
            tokens.close()
            raise LoadFailed(f"the tokenizer has {tokens.vocabulary} tokens, but the table only {len(table)} rows")
        return cls(plan, layout, table, after, tokens, options)

    async def outputs(self, items: Sequence[Item]) -> list[SentenceOutput]:
        """Return what each item becomes, in their order; raises `QueueFull`, `ShuttingDown`, `OutOfMemory`."""
        return await self._batcher.run(items)

    def detail(self) -> dict[str, Any]:
        """Return what was chosen, and by which file."""
        how = "StaticEmbedding" if self.layout.table == "dense" else "SparseStaticEmbedding"
        chosen = {"dtype": "fp32", "device": str(self._table.device), "architecture": how, "rows": len(self._table)}
        return self.layout.detail(self.size) | chosen

    def close(self) -> None:
        """End both threads."""
        self._batcher.close()
        self.tokenizer.close()

    def _compute(self, items: Sequence[Item]) -> list[SentenceOutput]:
        """Return what one batch becomes; runs in the compute thread."""
        with torch.inference_mode():
            found = self._dense(items) if self.layout.table == "dense" else self._sparse(items)
        if not all(bool(np.isfinite(_values(one)).all()) for one in found):
            raise NotFinite("the model's table has numbers that are not finite")
        return found

    def _dense(self, items: Sequence[Item]) -> list[SentenceOutput]:
        counts = np.array([len(item.ids) for item in items])
        ids = torch.from_numpy(np.concatenate([item.ids for item in items])).long()
        starts = torch.from_numpy(np.cumsum(counts) - counts)
        device = self._table.device
        vectors = torch.nn.functional.embedding_bag(ids.to(device), self._table, starts.to(device), mode="mean")
        for layer in self._layers:
            vectors = layer(vectors)
        return [SentenceOutput(dense=row) for row in vectors.cpu().numpy()]

    def _sparse(self, items: Sequence[Item]) -> list[SentenceOutput]:
        most = self.layout.sparse.top_k if isinstance(self.layout.sparse, StaticSparse) else None
        found = []
        for item in items:
            words = np.unique(item.ids)
            weights = self._table[torch.from_numpy(words).to(self._table.device)].cpu().numpy()
            places, values = top_weights(weights, most)
            found.append(SentenceOutput(sparse=(words[places].astype(np.int32), values)))
        return found


def _values(output: SentenceOutput) -> Vector:
    if output.sparse is not None:
        return output.sparse[1]
    return output.dense if output.dense is not None else np.zeros(0, dtype=np.float32)


class _Truncation(msgspec.Struct):
    max_length: int


class _Settings(msgspec.Struct):
    """The part of `tokenizer.json` that is read here."""

    truncation: _Truncation | None = None


def _longest(load: Load, model: Folder, layout: Layout) -> tuple[int, str]:
    """Return the most tokens of an input, and what set that bound."""
    bounds = [(UNBOUNDED, "the model has no bound")]
    if layout.table == "sparse":
        declared = model.mapping("tokenizer_config.json").get("model_max_length")
        if isinstance(declared, int | float) and declared > 0:
            bounds.append((int(min(declared, UNBOUNDED)), "tokenizer_config.json"))
    elif model.has("tokenizer.json"):
        try:
            said = msgspec.json.decode((model.path / "tokenizer.json").read_bytes(), type=_Settings)
        except msgspec.DecodeError as error:
            raise LoadFailed(f"tokenizer.json cannot be read: {error}") from None
        if said.truncation is not None:
            bounds.append((said.truncation.max_length, "tokenizer.json"))
    return max_lengths.stated(load.manifest.context, *min(bounds))


def _read(load: Load, layout: Layout) -> tuple[TransformersOptions, Folder]:
    options = load.engine_options(TransformersOptions)
    return options, Folder(load.path).inside(layout.encoder)


def _single_file(model: Folder) -> Path:
    """Return the table's file; raises `LoadFailed`."""
    shards = model.shards()
    if len(shards) != 1:
        raise LoadFailed(f"a table of tokens in {len(shards)} files is not served: save it as one")
    return shards[0]


def _shape(shard: Path, layout: Layout) -> tuple[int, int]:
    """Return the table's rows and the numbers of each; raises `LoadFailed` where there is none."""
    try:
        with safetensors.safe_open(shard, framework="pt") as file:
            names = set(file.keys())
            name = _name(names, layout)
            shape = file.get_slice(name).get_shape()
            rows = file.get_slice("mapping").get_shape()[0] if _mapped(name, names) else shape[0]
    except (OSError, safetensors.SafetensorError) as error:
        raise LoadFailed(f"{shard.name} cannot be read: {str(error).replace(str(shard.parent), '…')}") from None
    if len(shape) != (2 if layout.table == "dense" else 1):
        raise LoadFailed(f"{shard.name}: {name} of shape {tuple(shape)} is no table of tokens")
    return rows, shape[1] if len(shape) == 2 else 1


def _name(names: set[str], layout: Layout) -> str:
    known = _NAMES[layout.table or "dense"]
    found = next((name for name in known if name in names), None)
    if found is None:
        raise LoadFailed(f"model.safetensors has no {' and no '.join(known)}")
    return found


def _mapped(name: str, names: set[str]) -> bool:
    return name == "embeddings" and "mapping" in names


def _loaded(shard: Path, layout: Layout) -> torch.Tensor:
    """Return the table in fp32: (tokens, numbers), or (tokens,) of weights; raises `LoadFailed`."""
    rows, _ = _shape(shard, layout)
    tensors = safetensors.torch.load_file(shard)
    name = _name(set(tensors), layout)
    table = tensors[name].float()
    if _mapped(name, set(tensors)):  # model2vec lets tokens share a row
        mapping = tensors["mapping"].long()
        if int(mapping.min()) < 0 or int(mapping.max()) >= len(table):
            raise LoadFailed(f"{shard.name}: mapping names rows that are not there")
        table = table[mapping]
    weights = tensors.get("weights") if name == "embeddings" else None
    if weights is not None:
        if weights.shape != (rows,):
            raise LoadFailed(f"{shard.name}: weights are {len(weights)}, for {rows} tokens")
        table = table * weights.float()[:, None]
    return table
