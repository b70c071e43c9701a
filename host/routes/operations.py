"""Routes for operations whose function brings none: the request Struct as JSON in, the answer Struct as JSON out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from host.function import Function, Operation
from host.http import HostDependency
from host.http.response import JsonResponse


def default_routes(functions: Iterable[Function]) -> list[HTTPRouteHandler]:
    """Return a route for each operation that has a `path`, gives one answer, and is served by no route of its function.

    Streaming operations need a renderer, and so a route of their own.
    """
    return [
        _route(function, operation)
        for function in functions
        for operation in function.operations
        if operation.path and not operation.streams and operation.path not in _served(function)
    ]


def _served(function: Function) -> set[str]:
    return {path for route in function.routes for path in getattr(route, "paths", ())}


def _route(function: Function, operation: Operation[Any, Any]) -> HTTPRouteHandler:
    async def answer(data: Any, host: HostDependency) -> JsonResponse:
        return JsonResponse(await host.call(getattr(data, "model", None) or "", operation, data))

    body: Any = JSONBody
    answer.__annotations__ = {"data": body[operation.request], "host": HostDependency, "return": JsonResponse}
    answer.__name__ = operation.name
    return post(
        operation.path,
        status_code=200,
        summary=function.summary,
        tags=[function.name],
        responses={200: ResponseSpec(operation.answer, generate_examples=False, description="The answer")},
    )(answer)
