"""Embeddings on ONNX Runtime: texts are tokenised, merged with everybody's into batches, encoded and pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec

from functions.embeddings.api import EmbeddingsRequest, Kind
from functions.embeddings.inputs import Given
from functions.embeddings.instance import EmbeddingsInstance, function_options, items_of, vocabulary
from functions.embeddings.openai_token_ids import OpenAITokenIds
from functions.engines.batching.item import Item
from functions.engines.checkpoint.sentence import layout as layouts
from functions.engines.checkpoint.sentence.layout import Layout
from functions.engines.checkpoint.sentence.output import SentenceOutput
from functions.engines.onnx.files import OnnxFiles
from functions.engines.onnx.options import OnnxOptions
from functions.engines.onnx.sentence.model import OnnxSentenceModel
from host.function import Load, Plan, Progress


class OnnxEmbeddings(EmbeddingsInstance):
    """An ONNX graph that embeds texts; its folder says how, as sentence-transformers' folders do."""

    def __init__(self, model: OnnxSentenceModel, load: Load, foreign: OpenAITokenIds | None) -> None:
        super().__init__(load.manifest.name, items_of(model, load, foreign))
        self._model = model

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the sizes of the others; raises `LoadFailed`."""
        return OnnxSentenceModel.plan(load, _layout(load))

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer, graph and head."""
        foreign = vocabulary(load)
        return cls(OnnxSentenceModel.load(load, plan, _layout(load), progress), load, foreign)

    def close(self) -> None:
        """End the threads."""
        self._model.close()

    async def _computed(
        self, request: EmbeddingsRequest, inputs: Sequence[Given], kinds: tuple[Kind, ...]
    ) -> tuple[Sequence[Item], Sequence[SentenceOutput]]:
        items = await self._items.make(request, inputs)
        return items, [SentenceOutput(dense=vector) for vector in await self._model.vectors(items)]

    def _longest(self) -> int:
        return self._model.longest

    def _detail(self) -> dict[str, Any]:
        return self._model.detail()


def _layout(load: Load) -> Layout:
    engine = msgspec.msgpack.decode(load.options, type=OnnxOptions)
    own = function_options(load)
    said = layouts.LayoutOverrides(
        pooling=engine.pooling, normalize=own.normalize, matryoshka=own.matryoshka, prompts=own.prompts
    )
    return layouts.read(OnnxFiles.at(load.path, load.manifest.quantization).folder, said)
