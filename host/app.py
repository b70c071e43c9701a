"""The Litestar application: every function's routes and the host's own over one runtime, in one error shape."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig

from host import __version__
from host.function import Host
from host.http import origin_check
from host.http.direct_route import DirectRoutes
from host.http.errors import exception_handlers
from host.http.middleware import RequestScope
from host.http.openapi import SchemaPlugin
from host.routes import functions, health, models
from host.routes.operations import default_routes
from host.runtime import Runtime


def _cors(origins: tuple[str, ...]) -> CORSConfig | None:
    """Return who may call from a browser; None is nobody of another origin."""
    if not origins:
        return None
    return CORSConfig(
        allow_origins=list(origins),
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "retry-after", "retry-after-ms", "x-should-retry"],
    )


ROUTES: tuple[Any, ...] = (
    models.list_models,
    models.get_model,
    functions.list_functions,
    functions.stream_events,
    functions.get_function,
    functions.load_or_unload,
    health.livez,
    health.readyz,
    health.health,
    health.metrics,
)


def _function_routes(runtime: Runtime) -> list[Any]:
    functions = list(runtime.registry.functions.values())
    return [*(route for function in functions for route in function.routes), *default_routes(functions)]


def create(runtime: Runtime) -> RequestScope:
    """Return the ASGI application that serves `runtime`; its lifespan starts and stops the runtime."""
    inner = litestar(runtime)
    given = {"host": runtime.dispatch, "runtime": runtime}
    return RequestScope(DirectRoutes(inner, given, runtime.settings.max_body), inner.lifespan)


def litestar(runtime: Runtime) -> Litestar:
    """Return the Litestar application inside."""

    async def host() -> Host:
        return runtime.dispatch

    async def the_runtime() -> Runtime:
        return runtime

    @asynccontextmanager
    async def life(_: Litestar) -> AsyncIterator[None]:
        runtime.start()
        try:
            yield
        finally:
            await runtime.stop()

    return Litestar(
        route_handlers=[*ROUTES, *_function_routes(runtime)],
        dependencies={"host": Provide(host), "runtime": Provide(the_runtime)},
        exception_handlers=dict(exception_handlers),
        lifespan=[life],
        openapi_config=OpenAPIConfig(
            title="coldframe",
            version=__version__,
            path="/schema",
            render_plugins=[SchemaPlugin()],
        ),
        request_max_body_size=runtime.settings.max_body,
        cors_config=_cors(runtime.settings.cors),
        before_request=origin_check.guard(runtime.settings.cors),
        logging_config=None,
    )
