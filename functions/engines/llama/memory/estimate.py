"""Estimates the bytes that a model and a context take, from llama.cpp's own accounting, without reading the weights.

The model is opened without allocation (`no_alloc`), and a context on it; llama.cpp logs the size of every buffer. The
bytes of each layer's weights are read from the file's header.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from functions.engines.llama.memory.devices import Target, pool_of
from functions.engines.llama.model import gguf, log
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import EXPERTS, Model
from functions.engines.llama.model.native_library import VERSION
from functions.engines.llama.options import LlamaOptions, drafts
from functions.engines.model_cache import ModelCache
from host.errors import LoadFailed
from host.function import RAM

_MIB = 1 << 20
_LAYER = re.compile(r"^llama_(?:kv_cache|memory)\w*[:,] layer\s+\d+: dev = (\S+)")
_CACHE = re.compile(r"^llama_(?:kv_cache|memory)\w*: size =\s*([\d.]+) MiB \(")
_BUFFER = re.compile(r"(\S+)\s+(?:compute|output) buffer size =\s*([\d.]+) MiB")
_BLOCK = re.compile(r"blk\.(\d+)\.")
BYTES_PER_CELL = 48
"""Bytes that llama.cpp keeps of each token in the cache besides its keys and values: position, sequences, …"""
MAX_MEASURED_TOKENS = 1 << 20
"""KV cache size, in tokens, up to which contexts are measured. llama.cpp allocates its metadata of each cell even then,
so that larger ones could run out of memory: they are extrapolated linearly from two smaller ones."""


class ModelSize(msgspec.Struct, kw_only=True, frozen=True):
    """Sizes that do not depend on the context."""

    weights: int
    trained: int
    """Context length, in tokens, that the model was trained for."""
    layers: int


class LayerWeights(msgspec.Struct, kw_only=True, frozen=True):
    """Bytes of the weights: of each layer, of the experts in each layer, of the output, and of the rest."""

    layers: tuple[int, ...]
    experts: tuple[int, ...]
    output: int
    rest: int
    """Mostly the input embeddings, which llama.cpp keeps on the CPU."""


class ContextSize(msgspec.Struct, kw_only=True, frozen=True):
    """Bytes of one context by pool."""

    cache: dict[str, int]
    compute: dict[str, int]
    """Compute and output buffers."""

    @property
    def total(self) -> dict[str, int]:
        """Everything, by pool."""
        return dict(Counter(self.cache) + Counter(self.compute))


class MemoryEstimate:
    """Estimates of one model with one set of options, cached on disk. Close it."""

    def __init__(self, path: str, options: LlamaOptions) -> None:
        self._path = path
        self._options = options
        self._model: Model | None = None
        self._target = Target()
        self._entries: ModelCache | None = None

    def model(self) -> ModelSize:
        """Estimate the bytes of the model; raises `LoadFailed`."""
        known = self._cache().get("model")
        if known is not None:
            return msgspec.convert(known, ModelSize)
        model = self._open(Target())
        size = ModelSize(weights=model.bytes, trained=model.trained, layers=model.layers)
        self._cache().put("model", msgspec.to_builtins(size))
        return size

    def layers(self) -> LayerWeights:
        """Return the bytes of the weights by layer; raises `LoadFailed`."""
        known = self._cache().get("blocks")
        if known is not None:
            return msgspec.convert(known, LayerWeights)
        try:
            found = layer_weights(gguf.read(Path(self._path)).tensors, self.model().layers)
        except (gguf.GgufError, OSError) as error:
            raise LoadFailed(f"{Path(self._path).name} cannot be read: {error}") from None
        self._cache().put("blocks", msgspec.to_builtins(found))
        return found

    def weights(self, target: Target) -> dict[str, int]:
        """Return the bytes of weights in each pool; raises `LoadFailed`."""
        model = self.model()
        if not target.devices:
            return {RAM: model.weights}
        return weights_by_pool(self.layers(), target, experts_on_cpu(self._options, model.layers))

    def context(self, target: Target, context: int, slots: int) -> ContextSize:
        """Estimate the bytes of a context of `slots` sequences of `context` tokens; raises `LoadFailed`."""
        if context * slots <= MAX_MEASURED_TOKENS:
            return self._measure(target, context, slots)
        large = max(1, MAX_MEASURED_TOKENS // slots)
        small, full = self._measure(target, max(1, large // 2), slots), self._measure(target, large, slots)
        return extrapolate(small, full, (context - large // 2) / max(1, large - large // 2))

    def close(self) -> None:
        """Free the model and save the estimates."""
        if self._entries is not None:
            self._entries.save()
        if self._model is not None:
            self._model.close()
            self._model = None

    def _measure(self, target: Target, context: int, slots: int) -> ContextSize:
        key = f"context {context} {slots} {self._cache_key(target)}"
        known = self._cache().get(key)
        if known is not None:
            return msgspec.convert(known, ContextSize)
        model = self._open(target)
        with log.listen(debug=True) as lines:
            Context.open(model, self._options, target, context=context, slots=slots).close()
        size = read_sizes([line for _, line in lines])
        size.cache[RAM] = size.cache.get(RAM, 0) + context * slots * BYTES_PER_CELL
        self._cache().put(key, msgspec.to_builtins(size))
        return size

    def _open(self, target: Target) -> Model:
        if self._model is None or self._target != target:
            if self._model is not None:
                self._model.close()  # each holds a vocabulary
                self._model = None
            self._model, self._target = Model.open(self._path, self._options, target, sizes_only=True), target
        return self._model

    def _cache(self) -> ModelCache:
        if self._entries is None:
            if not Path(self._path).is_file():
                self._open(Target())  # raises with the reason
            self._entries = ModelCache("llama", Path(self._path), VERSION)
        return self._entries

    def _cache_key(self, target: Target) -> str:
        one = self._options
        parts = (
            one.batch,
            one.ubatch,
            one.cache_type_k,
            one.cache_type_v,
            one.flash_attention,
            one.sliding_window_full,
            one.cpu_moe,
            one.n_cpu_moe,
            one.deterministic,
            drafts(one),
        )
        there = [device.pool for device in target.devices]
        return " ".join(map(str, (*parts, *there, target.layers, target.split, *target.shares)))


def layer_weights(tensors: Mapping[str, int], layers: int) -> LayerWeights:
    """Return the bytes of these tensors by layer. An output tied to the embedding counts twice."""
    blocks, experts, output, rest = [0] * layers, [0] * layers, 0, 0
    for name, size in tensors.items():
        block = _BLOCK.match(name)
        if block and int(block[1]) < layers:
            blocks[int(block[1])] += size
            experts[int(block[1])] += size if re.search(EXPERTS, name) else 0
        elif name.startswith("output"):
            output += size
        else:
            rest += size
    if "output.weight" not in tensors:
        output += tensors.get("token_embd.weight", 0)
    return LayerWeights(layers=tuple(blocks), experts=tuple(experts), output=output, rest=rest)


def experts_on_cpu(options: LlamaOptions, layers: int) -> int:
    """Return the number of layers whose experts stay on the CPU."""
    return layers if options.cpu_moe else min(options.n_cpu_moe, layers)


def weights_by_pool(blocks: LayerWeights, target: Target, experts: int) -> dict[str, int]:
    """Return the bytes of weights in each pool; the experts of the first `experts` layers stay in RAM."""
    layers = len(blocks.layers)
    pools = target.pools(layers)
    found: Counter[str] = Counter({RAM: blocks.rest})
    for at, pool in enumerate(pools):
        size = blocks.layers[at] if at < layers else blocks.output
        on_cpu = blocks.experts[at] if at < min(experts, layers) else 0
        found[RAM] += on_cpu
        found[pool] += size - on_cpu
    if target.split == "row" and any(target.shares):
        spread, whole = sum(size for pool, size in found.items() if pool != RAM), sum(target.shares)
        for device, share in zip(target.devices, target.shares, strict=True):
            found[device.pool] = int(spread * share / whole)
    return dict(found)


def extrapolate(one: ContextSize, two: ContextSize, steps: float) -> ContextSize:
    """Extrapolate linearly: the size `steps` times as far from `one` as `two` is."""

    def reach(small: Mapping[str, int], large: Mapping[str, int]) -> dict[str, int]:
        return {pool: int(small.get(pool, 0) + (size - small.get(pool, 0)) * steps) for pool, size in large.items()}

    return ContextSize(cache=reach(one.cache, two.cache), compute=reach(one.compute, two.compute))


def read_sizes(lines: Sequence[str]) -> ContextSize:
    """Add up the buffers in llama.cpp's log of creating a context.

    For a KV cache the log has the device of each layer, then the total size, which layers share equally.
    """
    cache: Counter[str] = Counter()
    compute: Counter[str] = Counter()
    layers: list[str] = []
    for line in lines:
        if match := _LAYER.match(line):
            layers.append(pool_of(match[1]))
        elif match := _CACHE.match(line):
            size = float(match[1]) * _MIB
            for pool, count in Counter(layers or [RAM]).items():
                cache[pool] += int(size * count / max(1, len(layers)))
            layers = []
        elif match := _BUFFER.search(line):
            compute[pool_of(match[1])] += int(float(match[2]) * _MIB)
    return ContextSize(cache=dict(cache), compute=dict(compute))
