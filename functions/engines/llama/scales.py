"""Scales: the bytes a model and a context of some size will take, weighed by llama.cpp without touching the weights.

A model opened for its sizes only, and a context on it, tell every buffer in the log. It knows that log, and nothing of
how much may be taken.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from functions.engines.llama import log
from functions.engines.llama.context import Context
from functions.engines.llama.devices import Target, pool_of
from functions.engines.llama.ledger import Ledger
from functions.engines.llama.library import VERSION
from functions.engines.llama.model import Model, gpu_layers
from functions.engines.llama.options import LlamaOptions
from host.function import RAM

_MIB = 1 << 20
_CACHE = re.compile(r"^llama_(?:kv_cache|memory)\w*: size =\s*([\d.]+) MiB \(")
_BUFFER = re.compile(r"(\S+)\s+(compute|output) buffer size =\s*([\d.]+) MiB")


class ModelSize(msgspec.Struct, kw_only=True, frozen=True):
    """What does not depend on the context."""

    weights: int
    trained: int
    """Tokens of the longest context it was trained on."""
    layers: int
    offloaded: int
    """Layers on the accelerator."""


class ContextSize(msgspec.Struct, kw_only=True, frozen=True):
    """Bytes of one context."""

    cache: int
    compute: int
    """On the pool of the target."""
    host: int
    """Compute and output buffers elsewhere: in RAM."""


class Scales:
    """Weighs one model with one set of options; what was weighed before is looked up. Close it."""

    def __init__(self, path: str, options: LlamaOptions, target: Target) -> None:
        self._path = path
        self._options = options
        self._target = target
        self._model: Model | None = None
        self._ledger: Ledger | None = None

    def model(self) -> ModelSize:
        """Weigh the model; raises `LoadFailed`."""
        known = self._book().get(f"model {self._situation()}")
        if known is not None:
            return msgspec.convert(known, ModelSize)
        model = self._open()
        layers = gpu_layers(self._options, self._target)
        size = ModelSize(
            weights=model.bytes,
            trained=model.trained,
            layers=model.layers,
            offloaded=model.layers + 1 if layers < 0 else min(layers, model.layers + 1),
        )
        self._book().put(f"model {self._situation()}", msgspec.to_builtins(size))
        return size

    def context(self, context: int, slots: int) -> ContextSize:
        """Weigh a context of `slots` sequences of `context` tokens; raises `LoadFailed`."""
        key = f"context {context} {slots} {self._situation()}"
        known = self._book().get(key)
        if known is not None:
            return msgspec.convert(known, ContextSize)
        model = self._open()
        with log.listen() as heard:
            Context.open(model, self._options, self._target, context=context, slots=slots).close()
        size = read_sizes([line for _, line in heard], self._target.pool)
        self._book().put(key, msgspec.to_builtins(size))
        return size

    def close(self) -> None:
        """Free the model and write down what was weighed."""
        if self._ledger is not None:
            self._ledger.save()
        if self._model is not None:
            self._model.close()
            self._model = None

    def _open(self) -> Model:
        if self._model is None:
            self._model = Model.open(self._path, self._options, self._target, sizes_only=True)
        return self._model

    def _book(self) -> Ledger:
        if self._ledger is None:
            if not Path(self._path).is_file():
                self._open()  # says what is wrong with the file
            self._ledger = Ledger(Path(self._path), VERSION)
        return self._ledger

    def _situation(self) -> str:
        one = self._options
        parts = (
            one.batch,
            one.ubatch,
            one.cache_type_k,
            one.cache_type_v,
            one.flash_attention,
            one.sliding_window_full,
        )
        return " ".join(map(str, (*parts, self._target.pool, gpu_layers(one, self._target))))


def read_sizes(lines: list[str], pool: str) -> ContextSize:
    """Add up the buffers told in llama.cpp's log while it made a context."""
    cache = compute = host = 0.0
    for line in lines:
        if match := _CACHE.match(line):
            cache += float(match[1])
        elif match := _BUFFER.search(line):
            at_home = match[2] == "compute" if pool == RAM else pool_of(match[1]) == pool
            if at_home:
                compute += float(match[3])
            else:
                host += float(match[3])
    return ContextSize(cache=int(cache * _MIB), compute=int(compute * _MIB), host=int(host * _MIB))
