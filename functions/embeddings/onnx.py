"""Embeddings on ONNX Runtime: sentence-transformers folders with an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from functions.embeddings.api import EmbeddingsRequest, EmbeddingType
from functions.embeddings.inputs import Input
from functions.embeddings.instance import EmbeddingsInstance, create_tokenizer, load_token_ids
from functions.embeddings.openai_token_ids import OpenAITokenIds
from functions.embeddings.options import EmbeddingsOptions
from functions.engines.batching.item import Item
from functions.engines.checkpoint.sentence import layout as layouts
from functions.engines.checkpoint.sentence.layout import Layout
from functions.engines.checkpoint.sentence.output import SentenceOutput
from functions.engines.onnx.files import OnnxFiles
from functions.engines.onnx.options import OnnxOptions
from functions.engines.onnx.sentence.model import OnnxSentenceModel
from host.function import Load, Plan, Progress


class OnnxEmbeddings(EmbeddingsInstance):
    """An embedding model of a folder with an ONNX graph."""

    def __init__(self, model: OnnxSentenceModel, load: Load, token_ids: OpenAITokenIds | None) -> None:
        super().__init__(load.manifest.name, create_tokenizer(model, load, token_ids))
        self._model = model

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the sizes of the others; raises `LoadFailed`."""
        return OnnxSentenceModel.plan(load, _layout(load))

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer, graph and head."""
        token_ids = load_token_ids(load)
        return cls(OnnxSentenceModel.load(load, plan, _layout(load), progress), load, token_ids)

    def close(self) -> None:
        """End the threads."""
        self._model.close()

    async def _embed(
        self, request: EmbeddingsRequest, inputs: Sequence[Input], types: tuple[EmbeddingType, ...]
    ) -> tuple[Sequence[Item], Sequence[SentenceOutput]]:
        items = await self._tokenizer.tokenize(request, inputs)
        return items, [SentenceOutput(dense=vector) for vector in await self._model.vectors(items)]

    def _longest(self) -> int:
        return self._model.longest

    def _detail(self) -> dict[str, Any]:
        return self._model.detail()


def _layout(load: Load) -> Layout:
    engine = load.engine_options(OnnxOptions)
    own = load.task_options(EmbeddingsOptions)
    overrides = layouts.LayoutOverrides(
        pooling=engine.pooling, normalize=own.normalize, matryoshka=own.matryoshka, prompts=own.prompts
    )
    return layouts.read(OnnxFiles.at(load.path, load.manifest.quantization).folder, overrides)
