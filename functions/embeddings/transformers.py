"""Embeddings on torch: texts are tokenised, merged with everybody's into batches, encoded, pooled and cut to size."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

import msgspec

from functions.embeddings.api import EmbeddingsRequest, Kind
from functions.embeddings.inputs import QUERY, Given
from functions.embeddings.instance import EmbeddingsInstance, knobs, vocabulary
from functions.embeddings.items import Items
from functions.embeddings.parts import Image
from functions.engines.batching.item import Item
from functions.engines.transformers.folder import Folder
from functions.engines.transformers.options import TransformersOptions
from functions.engines.transformers.sentence import layout as layouts
from functions.engines.transformers.sentence.late import Task
from functions.engines.transformers.sentence.layout import Layout
from functions.engines.transformers.sentence.model import SentenceModel
from functions.engines.transformers.sentence.output import Output
from functions.engines.transformers.sentence.paired import PairedModel, Picture
from host.errors import InvalidRequest
from host.function import Load, Plan, Progress

IMAGES_MAX = 64
"""Images of one request: decoded they take up to 2 MB each until they are computed."""
_SIDE_BY_SIDE = 4
"""Requests whose images are decoded at the same time."""


class TransformersEmbeddings(EmbeddingsInstance):
    """A loaded encoder with its pooling, or two towers for texts and images."""

    def __init__(self, model: SentenceModel | PairedModel, items: Items) -> None:
        super().__init__(items, model.layout)
        self._model = model
        self._turn = asyncio.Semaphore(_SIDE_BY_SIDE)

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        layout = _layout(load)
        return _kind(layout).plan(load, layout)

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer, weights and head."""
        foreign, layout = vocabulary(load), _layout(load)
        model = _kind(layout).load(load, plan, layout, progress)
        items = Items(
            model.tokenizer,
            model.layout,
            longest=model.longest,
            truncate=knobs(load).truncate,
            size=model.size,
            foreign=foreign,
        )
        return cls(model, items)

    def close(self) -> None:
        """End the threads."""
        self._model.close()

    async def _computed(
        self, request: EmbeddingsRequest, inputs: Sequence[Given], kinds: tuple[Kind, ...]
    ) -> tuple[Sequence[Item], Sequence[Output]]:
        if isinstance(self._model, PairedModel):
            return await self._paired(self._model, request, inputs)
        tasks = self._model.tasks
        task: Task | None = tasks.default
        if request.input_type is not None:
            task = "query" if request.input_type in QUERY else "document"
        made = await self._items.make(
            _said(request, task),
            inputs,
            marker=tasks.marker(task),
            most=tasks.longest(task) if "colbert" in kinds else None,
        )
        items = made if kinds == ("dense",) else tasks.wanted(made, kinds, task)
        return made, await self._model.outputs(items)

    async def _paired(
        self, model: PairedModel, request: EmbeddingsRequest, inputs: Sequence[Given]
    ) -> tuple[Sequence[Item], Sequence[Output]]:
        """Return items and vectors of texts and images; as many images as fit in memory are decoded at once."""
        images = [item for item in inputs if isinstance(item, Image)]
        texts = [item for item in inputs if not isinstance(item, Image)]
        if len(images) > IMAGES_MAX:
            raise InvalidRequest(
                f"input has {len(images)} images, at most {IMAGES_MAX} are taken at once", param="input"
            )
        made = await self._items.make(request, texts, places=_places(inputs)) if texts else []
        if not images:
            return made, await model.outputs(made)
        async with self._turn:
            pixels = await model.pictures.pixels([one.decoded for one in images], [one.place for one in images])
            seen = iter([Picture.of(one, model.pictures.tokens) for one in pixels])
            read = iter(made)
            items = [next(seen) if isinstance(item, Image) else next(read) for item in inputs]
            return items, await model.outputs(items)

    def _longest(self) -> int:
        return self._model.longest

    def _detail(self) -> dict[str, Any]:
        return self._model.detail()


def _kind(layout: Layout) -> type[SentenceModel | PairedModel]:
    return PairedModel if layout.paired else SentenceModel


def _said(request: EmbeddingsRequest, task: Task | None) -> EmbeddingsRequest:
    """Return the request with the task that is meant where it names none, so that the prompt is the task's."""
    if task is None or request.input_type is not None or request.prompt_name is not None:
        return request
    return msgspec.structs.replace(request, input_type=task)


def _places(inputs: Sequence[Given]) -> list[int]:
    """Return the index of each input that is no image."""
    return [at for at, item in enumerate(inputs) if not isinstance(item, Image)]


def _layout(load: Load) -> Layout:
    engine = msgspec.msgpack.decode(load.options, type=TransformersOptions)
    own = knobs(load)
    said = layouts.Said(pooling=engine.pooling, normalize=own.normalize, matryoshka=own.matryoshka, prompts=own.prompts)
    return layouts.read(Folder(load.path), said)
