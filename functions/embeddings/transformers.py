"""Embeddings on torch: texts are tokenised, merged with everybody's into batches, encoded, pooled and cut to size.

A model with different ways for queries and documents is several models here, and each request goes to one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

import msgspec

from functions.embeddings.api import EmbeddingsRequest, Kind
from functions.embeddings.content_parts import Image
from functions.embeddings.inputs import QUERY, Given, asked
from functions.embeddings.instance import EmbeddingsInstance, function_options, items_of, vocabulary
from functions.embeddings.router_models import RoutedModel, joined, kind, told
from functions.embeddings.tokenize import InputTokenizer
from functions.engines.batching.item import Item
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence import router
from functions.engines.checkpoint.sentence.colbert import Task
from functions.engines.checkpoint.sentence.layout import LayoutOverrides
from functions.engines.checkpoint.sentence.output import SentenceOutput
from functions.engines.checkpoint.sentence.router import Router
from functions.engines.transformers.options import TransformersOptions
from functions.engines.transformers.sentence.dual_encoder import DualEncoder, ImageItem
from functions.engines.transformers.sentence.model import SentenceModel
from host.errors import InvalidRequest
from host.function import Load, Plan, Progress

IMAGES_MAX = 64
"""Images of one request: decoded they take up to 2 MB each until they are computed."""
_SIDE_BY_SIDE = 4
"""Requests whose images are decoded at the same time."""


class TransformersEmbeddings(EmbeddingsInstance):
    """A loaded encoder with its pooling, a table of vectors, two towers for texts and images, or ways with any."""

    def __init__(self, name: str, sides: dict[str, RoutedModel], ways: Router) -> None:
        """`sides` are the ways by name; the first one speaks for all where only one can."""
        first = next(iter(sides.values()))
        super().__init__(name, first.items)
        self._sides = sides
        self._routes = ways
        self._turn = asyncio.Semaphore(_SIDE_BY_SIDE)

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        layouts = _routes(load).layouts
        return joined({name: kind(layout).plan(load, layout) for name, layout in layouts.items()})

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer, weights and head."""
        foreign, ways = vocabulary(load), _routes(load)
        sides: dict[str, RoutedModel] = {}
        try:
            for name, layout in ways.layouts.items():
                own = plan if len(ways.layouts) == 1 else kind(layout).plan(load, layout)
                model = kind(layout).load(load, own, layout, progress)
                sides[name] = RoutedModel(model, items_of(model, load, foreign))
        except BaseException:
            for side in sides.values():
                side.model.close()
            raise
        return cls(load.manifest.name, sides, ways)

    def close(self) -> None:
        """End the threads."""
        for side in self._sides.values():
            side.model.close()

    def _chosen(self, request: EmbeddingsRequest) -> InputTokenizer:
        return self._side(request).items

    def _side(self, request: EmbeddingsRequest) -> RoutedModel:
        task = asked(request)
        way = self._routes.routes.get(task)
        if way is None:
            known = " or ".join(repr(one) for one in self._routes.routes if one)
            what = f"has no way for {task!r}" if task else "treats queries and documents differently"
            raise InvalidRequest(f"this model {what}: send input_type: {known}", param="input_type")
        return self._sides[way]

    async def _computed(
        self, request: EmbeddingsRequest, inputs: Sequence[Given], kinds: tuple[Kind, ...]
    ) -> tuple[Sequence[Item], Sequence[SentenceOutput]]:
        side = self._side(request)
        if isinstance(side.model, DualEncoder):
            return await self._paired(side.model, side.items, request, inputs)
        if isinstance(side.model, SentenceModel):
            return await self._sentences(side.model, side.items, request, inputs, kinds)
        items = await side.items.make(request, inputs)
        return items, await side.model.outputs(items)

    async def _sentences(
        self,
        model: SentenceModel,
        maker: InputTokenizer,
        request: EmbeddingsRequest,
        inputs: Sequence[Given],
        kinds: tuple[Kind, ...],
    ) -> tuple[Sequence[Item], Sequence[SentenceOutput]]:
        tasks = model.tasks
        task: Task | None = tasks.default
        if request.input_type is not None:
            task = "query" if request.input_type in QUERY else "document"
        made = await maker.make(
            _said(request, task),
            inputs,
            marker=tasks.marker(task),
            most=tasks.longest(task) if "colbert" in kinds else None,
        )
        items = made if kinds == ("dense",) else tasks.wanted(made, kinds, task)
        return made, await model.outputs(items)

    async def _paired(
        self, model: DualEncoder, maker: InputTokenizer, request: EmbeddingsRequest, inputs: Sequence[Given]
    ) -> tuple[Sequence[Item], Sequence[SentenceOutput]]:
        """Return items and vectors of texts and images; as many images as fit in memory are decoded at once."""
        images = [item for item in inputs if isinstance(item, Image)]
        texts = [item for item in inputs if not isinstance(item, Image)]
        if len(images) > IMAGES_MAX:
            raise InvalidRequest(
                f"input has {len(images)} images, at most {IMAGES_MAX} are taken at once", param="input"
            )
        made = await maker.make(request, texts, places=_places(inputs)) if texts else []
        if not images:
            return made, await model.outputs(made)
        async with self._turn:
            pixels = await model.images.pixels([one.decoded for one in images], [one.place for one in images])
            seen = iter([ImageItem.of(one, model.images.tokens) for one in pixels])
            read = iter(made)
            items = [next(seen) if isinstance(item, Image) else next(read) for item in inputs]
            return items, await model.outputs(items)

    def _longest(self) -> int:
        return max(side.model.longest for side in self._sides.values())

    def _detail(self) -> dict[str, Any]:
        return told(self._sides, self._routes)


def _said(request: EmbeddingsRequest, task: Task | None) -> EmbeddingsRequest:
    """Return the request with the task that is meant where it names none, so that the prompt is the task's."""
    if task is None or request.input_type is not None or request.prompt_name is not None:
        return request
    return msgspec.structs.replace(request, input_type=task)


def _places(inputs: Sequence[Given]) -> list[int]:
    """Return the index of each input that is no image."""
    return [at for at, item in enumerate(inputs) if not isinstance(item, Image)]


def _routes(load: Load) -> Router:
    engine = msgspec.msgpack.decode(load.options, type=TransformersOptions)
    own = function_options(load)
    said = LayoutOverrides(
        pooling=engine.pooling, normalize=own.normalize, matryoshka=own.matryoshka, prompts=own.prompts
    )
    return router.read(Folder(load.path), said)
