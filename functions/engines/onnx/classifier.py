"""Sequence and token classification models on ONNX Runtime: items are batched across requests; each gets its logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from functions.engines.batching.batcher import Batcher
from functions.engines.batching.classifier import HeadKind, Logits
from functions.engines.batching.item import Item, size
from functions.engines.checkpoint.tokenizer import FastTokenizer
from functions.engines.onnx import encoder as encoders
from functions.engines.onnx import plan as planning
from functions.engines.onnx import tokenizer as tokenizers
from functions.engines.onnx.encoder import Encoder
from functions.engines.onnx.files import OnnxFiles
from functions.engines.onnx.native_library import is_out_of_memory
from functions.engines.onnx.options import OnnxOptions
from functions.engines.onnx.probe import probe
from host.errors import ColdframeError, InvalidRequest, LoadFailed, NotFinite
from host.function import Load, Plan, Progress

_RANKS: dict[HeadKind, int] = {"sequence": 2, "token": 3}


class OnnxClassifierModel:
    """Implements `functions.engines.batching.classifier.ClassifierModel`."""

    def __init__(
        self,
        plan: Plan,
        encoder: Encoder,
        tokens: FastTokenizer,
        options: OnnxOptions,
        config: Mapping[str, Any],
        head: HeadKind,
    ) -> None:
        self.tokenizer = tokens
        self.config = config
        self.longest = plan.context or 0
        self._head = head
        self._file = str(plan.detail.get("file", ""))
        self._encoder = encoder
        self._output = encoder.output(("logits",), _RANKS[head])
        self.labels = _labels(config, probe(self._compute, tokens, self._file)[0].shape[-1])
        self._check_rows()
        budget = int(plan.detail.get("batch_tokens") or planning.batch_tokens(options))
        self._batcher: Batcher[Item, Logits] = Batcher(
            self._compute, size, budget=budget, overhead=planning.OVERHEAD, is_out_of_memory=is_out_of_memory
        )

    def _check_rows(self) -> None:
        """Raise `LoadFailed` for a tokenizer with words that the graph's table has no row for."""
        try:
            self._compute([Item(ids=self.tokenizer.frame([self.tokenizer.word]))])
        except InvalidRequest as error:
            raise LoadFailed(
                f"the tokenizer has words up to the id {self.tokenizer.word}, but {self._file} has no row for that: "
                "the two are not of one model"
            ) from error

    @staticmethod
    def plan(load: Load) -> Plan:
        """Read the model's small files and the sizes of the others; raises `LoadFailed`."""
        options, files = _read(load)
        return planning.encoder(load, options, files)

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress, head: HeadKind) -> Self:
        """Load tokenizer and graph; raises `LoadFailed`, also for a graph without such a head, and `OutOfMemory`."""
        options, files = _read(load)
        tokens = tokenizers.load(files, load.threads)
        try:
            encoder = encoders.load(load, options, files, progress)
            return cls(plan, encoder, tokens, options, files.folder.config(), head)
        except BaseException:
            tokens.close()
            raise

    async def logits(self, items: Sequence[Item]) -> list[Logits]:
        """Return the logits of each item, in their order."""
        return await self._batcher.run(items)

    def detail(self) -> dict[str, Any]:
        """Return what was chosen."""
        return {
            "labels": list(self.labels),
            "file": self._file,
            "device": "cpu",
            "architecture": next(iter(self.config.get("architectures") or ()), None),
        }

    def close(self) -> None:
        """End both threads."""
        self._batcher.close()
        self.tokenizer.close()

    def _compute(self, items: Sequence[Item]) -> list[Logits]:
        """Return the logits of one batch; runs in the compute thread."""
        logits, mask = self._encoder.forward(items, self._output)
        shape = mask.shape[: _RANKS[self._head] - 1]
        if logits.shape[:-1] != shape:
            raise ColdframeError(f"the model gave logits of shape {logits.shape} for inputs of shape {mask.shape}")
        if not np.isfinite(logits).all():
            raise NotFinite(f"the model gave numbers that are not finite with {self._file}")
        if self._head == "sequence":
            return list(logits)
        return [row[: len(item.ids)] for row, item in zip(logits, items, strict=True)]


def _labels(config: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """Return the labels of `config.json`, numbered ones where it names none; raises `LoadFailed` for another count."""
    names = config.get("id2label")
    if not isinstance(names, dict) or not names:
        return tuple(f"LABEL_{at}" for at in range(count))
    if len(names) != count:
        raise LoadFailed(f"config.json names {len(names)} labels, but the graph gives {count}")
    try:
        return tuple(str(names[key]) for key in sorted(names, key=int))
    except ValueError:
        raise LoadFailed("config.json: the keys of id2label are no numbers") from None


def _read(load: Load) -> tuple[OnnxOptions, OnnxFiles]:
    return load.engine_options(OnnxOptions), OnnxFiles.at(load.path, load.manifest.quantization)
