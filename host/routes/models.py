"""`/v1/models`: what can be asked for, in OpenAI's shape with what local clients need besides. Never wakes anything."""

from __future__ import annotations

import time
from typing import Any, Literal

import msgspec
from litestar import get
from litestar.params import FromPath

from host.lifecycle.deployment import Deployment
from host.routes.runtime_dependency import RuntimeDependency
from host.state import State

_STARTED = int(time.time())
_STATUS = {State.READY: "loaded", State.PLANNING: "loading", State.LOADING: "loading", State.FAILED: "failed"}


class ModelStatus(msgspec.Struct, kw_only=True, frozen=True):
    """Whether the model is in memory now."""

    value: str
    """`loaded`, `loading`, `unloaded` or `failed`."""


class Model(msgspec.Struct, kw_only=True, frozen=True):
    """One name that clients may send as `model`."""

    id: str
    object: Literal["model"] = "model"
    created: int = _STARTED
    owned_by: str = "coldframe"
    task: str
    aliases: tuple[str, ...] = ()
    status: ModelStatus
    context_length: int | None = None
    """Tokens per slot as served; null when nothing has been loaded yet and the manifest leaves it open."""
    max_model_len: int | None = None
    """The same, under the name vLLM's clients read."""


class ModelList(msgspec.Struct, kw_only=True, frozen=True):
    """All of them."""

    object: Literal["list"] = "list"
    data: list[Model]


@get(["/v1/models", "/models"], summary="List what can be asked for")
async def list_models(runtime: RuntimeDependency) -> ModelList:
    """List every served name, aliases included."""
    return ModelList(data=[_model(d, name) for d in runtime.catalog for name in (d.name, *d.manifest.aliases)])


@get(["/v1/models/{model:path}", "/models/{model:path}"], summary="One model")
async def get_model(runtime: RuntimeDependency, model: FromPath[str]) -> Model:
    """Return one model; names may hold slashes, raw or as %2F."""
    name = model.lstrip("/")
    return _model(runtime.catalog.find(name), name)


def _model(deployment: Deployment, name: str) -> Model:
    context: Any = deployment.context
    return Model(
        id=name,
        task=deployment.function.name,
        aliases=deployment.manifest.aliases,
        status=ModelStatus(value=_STATUS.get(deployment.state, "unloaded")),
        context_length=context,
        max_model_len=context,
    )
