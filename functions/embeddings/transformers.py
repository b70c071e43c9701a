"""Embeddings on torch: sentence-transformers folders, dual encoders for texts and images, static embeddings.

A checkpoint with a Router is loaded as several models, and each request goes to the one for its input type.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

import msgspec

from functions.embeddings.api import EmbeddingsRequest, EmbeddingType
from functions.embeddings.content_parts import Image
from functions.embeddings.inputs import QUERY, Input, input_type
from functions.embeddings.instance import EmbeddingsInstance, create_tokenizer, load_token_ids
from functions.embeddings.options import EmbeddingsOptions
from functions.embeddings.router_models import Route, detail, merge_plans, model_class
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
"""Images of one request: decoded they take up to 2 MB each."""
_IMAGE_REQUESTS = 4
"""Requests whose images are decoded at the same time."""


class TransformersEmbeddings(EmbeddingsInstance):
    """A loaded sentence encoder, static embedding or dual encoder, or several of them as the routes of a Router."""

    def __init__(self, name: str, routes: dict[str, Route], router: Router) -> None:
        """`routes` are by name; the name of a single one is empty."""
        super().__init__(name, next(iter(routes.values())).tokenizer)
        self._routes = routes
        self._router = router
        self._image_requests = asyncio.Semaphore(_IMAGE_REQUESTS)

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Read the model's small files and the headers of its weights; raises `LoadFailed`, `ManifestError`."""
        layouts = _router(load).layouts
        return merge_plans({name: model_class(layout).plan(load, layout) for name, layout in layouts.items()})

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Load tokenizer, weights and head."""
        token_ids, router_ = load_token_ids(load), _router(load)
        routes: dict[str, Route] = {}
        try:
            for name, layout in router_.layouts.items():
                own = plan if len(router_.layouts) == 1 else model_class(layout).plan(load, layout)
                model = model_class(layout).load(load, own, layout, progress)
                routes[name] = Route(model, create_tokenizer(model, load, token_ids))
        except BaseException:
            for route in routes.values():
                route.model.close()
            raise
        return cls(load.manifest.name, routes, router_)

    def close(self) -> None:
        """End the threads."""
        for route in self._routes.values():
            route.model.close()

    def _tokenizer_for(self, request: EmbeddingsRequest) -> InputTokenizer:
        return self._route(request).tokenizer

    def _route(self, request: EmbeddingsRequest) -> Route:
        """Return the route for a request's input type; raises `InvalidRequest` where there is none."""
        task = input_type(request)
        name = self._router.routes.get(task)
        if name is None:
            known = " or ".join(repr(one) for one in self._router.routes if one)
            what = f"has no route for {task!r}" if task else "treats queries and documents differently"
            raise InvalidRequest(f"this model {what}: send input_type: {known}", param="input_type")
        return self._routes[name]

    async def _embed(
        self, request: EmbeddingsRequest, inputs: Sequence[Input], types: tuple[EmbeddingType, ...]
    ) -> tuple[Sequence[Item], Sequence[SentenceOutput]]:
        route = self._route(request)
        if isinstance(route.model, DualEncoder):
            return await self._embed_images(route.model, route.tokenizer, request, inputs)
        if isinstance(route.model, SentenceModel):
            return await self._embed_texts(route.model, route.tokenizer, request, inputs, types)
        items = await route.tokenizer.tokenize(request, inputs)
        return items, await route.model.outputs(items)

    async def _embed_texts(
        self,
        model: SentenceModel,
        tokenizer: InputTokenizer,
        request: EmbeddingsRequest,
        inputs: Sequence[Input],
        types: tuple[EmbeddingType, ...],
    ) -> tuple[Sequence[Item], Sequence[SentenceOutput]]:
        tasks = model.tasks
        task: Task | None = tasks.default
        if request.input_type is not None:
            task = "query" if request.input_type in QUERY else "document"
        items = await tokenizer.tokenize(
            _with_input_type(request, task),
            inputs,
            marker=tasks.marker(task),
            max_length=tasks.longest(task) if "colbert" in types else None,
        )
        typed = items if types == ("dense",) else tasks.wanted(items, types, task)
        return items, await model.outputs(typed)

    async def _embed_images(
        self, model: DualEncoder, tokenizer: InputTokenizer, request: EmbeddingsRequest, inputs: Sequence[Input]
    ) -> tuple[Sequence[Item], Sequence[SentenceOutput]]:
        """Embed texts and images; a few requests at a time decode images, to limit their memory."""
        images = [item for item in inputs if isinstance(item, Image)]
        texts = [item for item in inputs if not isinstance(item, Image)]
        if len(images) > IMAGES_MAX:
            raise InvalidRequest(
                f"input has {len(images)} images, at most {IMAGES_MAX} are taken at once", param="input"
            )
        text_items = await tokenizer.tokenize(request, texts, indexes=_text_indexes(inputs)) if texts else []
        if not images:
            return text_items, await model.outputs(text_items)
        async with self._image_requests:
            pixels = await model.images.pixels([one.decoded for one in images], [one.param for one in images])
            next_image = iter([ImageItem.of(one, model.images.tokens) for one in pixels])
            next_text = iter(text_items)
            items = [next(next_image) if isinstance(item, Image) else next(next_text) for item in inputs]
            return items, await model.outputs(items)

    def _longest(self) -> int:
        return max(route.model.longest for route in self._routes.values())

    def _detail(self) -> dict[str, Any]:
        return detail(self._routes, self._router)


def _with_input_type(request: EmbeddingsRequest, task: Task | None) -> EmbeddingsRequest:
    """Return the request with the model's default task where it names none, so that the task's prompt is used."""
    if task is None or request.input_type is not None or request.prompt_name is not None:
        return request
    return msgspec.structs.replace(request, input_type=task)


def _text_indexes(inputs: Sequence[Input]) -> list[int]:
    """Return the index of each input that is not an image."""
    return [at for at, item in enumerate(inputs) if not isinstance(item, Image)]


def _router(load: Load) -> Router:
    engine = load.engine_options(TransformersOptions)
    own = load.task_options(EmbeddingsOptions)
    overrides = LayoutOverrides(
        pooling=engine.pooling, normalize=own.normalize, matryoshka=own.matryoshka, prompts=own.prompts
    )
    return router.read(Folder(load.path), overrides)
