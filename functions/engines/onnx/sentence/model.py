"""Sentence embedding models on ONNX Runtime: items of all requests are batched, encoded, and pooled into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import numpy as np

from functions.engines.batching.batcher import Batcher
from functions.engines.batching.item import Item, size
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence.layout import Layout
from functions.engines.checkpoint.sentence.output import Vector
from functions.engines.checkpoint.tokenizer import FastTokenizer
from functions.engines.onnx import encoder as encoders
from functions.engines.onnx import plan as planning
from functions.engines.onnx import tokenizer as tokenizers
from functions.engines.onnx.encoder import Encoder, Floats
from functions.engines.onnx.files import OnnxFiles
from functions.engines.onnx.native_library import is_out_of_memory
from functions.engines.onnx.options import OnnxOptions
from functions.engines.onnx.probe import probe
from functions.engines.onnx.sentence import layers
from functions.engines.onnx.sentence.pooling import pool
from host.errors import ColdframeError, LoadFailed, NotFinite
from host.function import Load, Plan, Progress

_TOKENS = ("last_hidden_state", "token_embeddings")
_POOLED = "sentence_embedding"
"""The output of graphs that pool by themselves; it is taken where they give no vectors of tokens."""


class OnnxSentenceModel:
    """An encoder with its head. `size` is the dimension, `longest` the most tokens, special ones included."""

    def __init__(
        self, plan: Plan, layout: Layout, encoder: Encoder, tokens: FastTokenizer, options: OnnxOptions, folder: Folder
    ) -> None:
        self.layout = layout
        self.tokenizer = tokens
        self.longest = plan.context or 0
        self._file = str(plan.detail.get("file", ""))
        self._architectures = folder.config().get("architectures") or ()
        self._encoder = encoder
        self._pools = encoder.outputs.get(_POOLED, 0) == 2 and 3 not in encoder.outputs.values()
        self._output = _POOLED if self._pools else encoder.output(_TOKENS, 3)
        self._layers: list[layers.Layer] = []
        wide = probe(self._compute, tokens, self._file)[0].shape[-1]
        # A graph that pools has its dense layers in it too.
        steps = [step for step in layout.steps if step[0] == "Normalize"] if self._pools else layout.steps
        self._layers, self.size = layers.load(steps, folder, wide)
        budget = int(plan.detail.get("batch_tokens") or planning.batch_tokens(options))
        self._batcher: Batcher[Item, Vector] = Batcher(
            self._compute, size, budget=budget, overhead=planning.OVERHEAD, is_out_of_memory=is_out_of_memory
        )

    @staticmethod
    def plan(load: Load, layout: Layout) -> Plan:
        """Read the model's small files and the sizes of the others; raises `LoadFailed`."""
        options, files = _read(load)
        layout = _dense(layout)
        plan = planning.encoder(load, options, files, layout.longest)
        return msgspec.structs.replace(plan, notes=(*plan.notes, *layout.notes))

    @classmethod
    def load(cls, load: Load, plan: Plan, layout: Layout, progress: Progress) -> Self:
        """Load tokenizer, graph and head; raises `LoadFailed` and `OutOfMemory`."""
        options, files = _read(load)
        layout = _dense(layout)
        tokens = tokenizers.load(files, load.threads, lower=layout.lower)
        try:
            return cls(plan, layout, encoders.load(load, options, files, progress), tokens, options, files.folder)
        except BaseException:
            tokens.close()
            raise

    async def vectors(self, items: Sequence[Item]) -> list[Vector]:
        """Return the vector of each item, in their order; raises `QueueFull`, `ShuttingDown`, `OutOfMemory`."""
        return await self._batcher.run(items)

    def detail(self) -> dict[str, Any]:
        """Return what was chosen, and by which file."""
        pooled = {"pooling": [f"the graph's {_POOLED}"]} if self._pools else {}
        return (
            self.layout.detail(self.size)
            | pooled
            | {
                "file": self._file,
                "device": "cpu",
                "architecture": next(iter(self._architectures), None),
            }
        )

    def close(self) -> None:
        """End both threads."""
        self._batcher.close()
        self.tokenizer.close()

    def _compute(self, items: Sequence[Item]) -> list[Vector]:
        """Return the vectors of one batch; runs in the compute thread."""
        found, mask = self._encoder.forward(items, self._output)
        expected = mask.shape[:1] if self._pools else mask.shape
        if found.shape[:-1] != expected:
            raise ColdframeError(f"the model gave {self._output} of shape {found.shape} for inputs of {mask.shape}")
        vectors: Floats = found
        if not self._pools:
            prompts = None if self.layout.with_prompt else [item.prompt for item in items]
            vectors = pool(found, mask, self.layout.pooling, prompts)
        for layer in self._layers:
            vectors = layer(vectors)
        if not np.isfinite(vectors).all():
            raise NotFinite(f"the model gave numbers that are not finite with {self._file}")
        return list(vectors)


def _dense(layout: Layout) -> Layout:
    """Return what of a layout is served by this engine; raises `LoadFailed` for models of other kinds."""
    if layout.kinds[0] != "dense" or layout.dual_encoder:
        raise LoadFailed("the onnx engine makes one vector of each text; use the transformers engine for this model")
    if layout.table is not None or layout.layers is not None:
        what = "a table of vectors" if layout.table is not None else "WeightedLayerPooling"
        raise LoadFailed(f"modules.json: {what} is not served by the onnx engine; use the transformers engine")
    if layout.encoder.strip("./"):
        raise LoadFailed(
            f"modules.json has its encoder in {layout.encoder}: the onnx engine takes folders without that"
        )
    missing = dict.fromkeys(layout.kinds[1:], "the onnx engine makes dense ones only")
    return msgspec.structs.replace(layout, kinds=("dense",), missing=missing)


def _read(load: Load) -> tuple[OnnxOptions, OnnxFiles]:
    return load.engine_options(OnnxOptions), OnnxFiles.at(load.path, load.manifest.quantization)
