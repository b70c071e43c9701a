"""The short way of a POST whose handler takes a JSON body and the host, and nothing else.

Litestar resolves such a handler's dependencies, builds a request and decodes the body in two steps, each time. Here
the body is decoded once, straight into the handler's Struct. Whatever is not plain (an origin, a body of unknown
length, a body that cannot be decoded) takes Litestar's way, so its answers and errors stay Litestar's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from litestar import Litestar, Request
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute
from litestar.types import Receive, Scope, Send

from host.http.errors import of_exception
from host.http.response import JsonResponse
from host.http.sse import EventStream

_BODY = "data"


class DirectRoutes:
    """The application, with a short way to the handlers that can take it."""

    def __init__(self, app: Litestar, given: dict[str, Any], max_body: int) -> None:
        self._app = app
        self._max_body = max_body
        self._routes = dict(_found(app, given))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI has it."""
        route = self._routes.get(scope["path"]) if scope.get("method") == "POST" else None
        if route is None or not self._plain(scope):
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        try:
            data = route.decode(body)
        except Exception:  # noqa: BLE001 - Litestar meets it too, and says what is wrong
            await self._app(scope, _again(body, receive), send)
            return
        await route.answer(data, self._app, scope, receive, send)

    def _plain(self, scope: Scope) -> bool:
        """Whether the length of the body is known and allowed, no page of a browser asks, and no prefix is cut off."""
        length = None
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = value
            elif name == b"origin":
                return False
        return length is not None and length.isdigit() and int(length) <= self._max_body and not scope.get("root_path")


class _Route:
    """One handler: what decodes its body, and what else it is called with."""

    def __init__(self, handler: HTTPRouteHandler, kind: Any, given: dict[str, Any]) -> None:
        self._handler = handler
        self._call: Callable[..., Any] = handler.fn
        self._given = given
        self._fields = kind.__struct_encode_fields__
        self.decode = msgspec.json.Decoder(kind, strict=False).decode
        """Not strict, as Litestar's own decoding is not: `"1"` is taken for a number."""

    async def answer(self, data: Any, app: Litestar, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the handler and send what it returns, or the error it raises before anything was sent."""
        response = None
        try:
            response = await self._call(data=data, **self._given)
            if isinstance(response, EventStream):
                await response.send(send)
                return
            if not isinstance(response, JsonResponse):
                response = await self._dressed(response, app, scope, receive, send)
        except Exception as error:
            if isinstance(response, EventStream) and response.begun:
                raise
            response = of_exception(error, self._fields)
        if isinstance(response, JsonResponse):
            await response.send(send)
        else:
            await response(scope, receive, send)

    async def _dressed(self, response: Any, app: Litestar, scope: Any, receive: Receive, send: Send) -> Any:
        """Return what Litestar makes of a value of another kind."""
        scope.setdefault("state", {})
        scope.update(app=app, litestar_app=app, route_handler=self._handler, path_params={})
        request: Request[Any, Any, Any] = Request(scope, receive, send)
        return await self._handler.to_response(app=app, data=response, request=request)


def _found(app: Litestar, given: dict[str, Any]) -> Any:
    """Yield the paths whose handlers can be called directly, each with its route."""
    for route in app.routes:
        if isinstance(route, HTTPRoute) and not route.path_parameters and "POST" in route.route_handler_map:
            handler, model = route.route_handler_map["POST"]
            kind = _kind(app, handler, model, given)
            if kind is not None:
                names = handler.parsed_fn_signature.parameters
                yield route.path, _Route(handler, kind, {name: given[name] for name in names if name in given})


def _kind(app: Litestar, handler: HTTPRouteHandler, model: Any, given: dict[str, Any]) -> Any:
    """Return the Struct of a handler's body; None where more than the body and `given` goes into its answer."""
    names = handler.parsed_fn_signature.parameters
    kind = names[_BODY].annotation if _BODY in names else None
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) or handler.has_sync_callable:
        return None
    special = (
        any(name not in given and name != _BODY for name in names),
        any(getattr(model, field) for field in dir(model) if field.startswith("expected_") and "reserved" not in field),
        handler.guards or handler.middleware or handler.dependencies or handler.exception_handlers,
        handler.before_request or handler.after_request or handler.after_response or handler.cache,
        handler.resolve_response_headers() or handler.resolve_response_cookies() or handler.resolve_data_dto(),
        handler.resolve_request_max_body_size() != app.request_max_body_size,
    )
    return None if any(special) else kind


async def _read(receive: Receive) -> bytes:
    """Return the whole body."""
    message: Any = await receive()
    if not message.get("more_body"):
        return bytes(message.get("body", b""))
    parts = [message.get("body", b"")]
    while message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was read already, and then what comes after it."""
    left: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def given() -> Any:
        return left.pop() if left else await receive()

    return given
