"""`POST /v1/echo`: one JSON object, or with `stream: true` one server-sent event per token and `[DONE]`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from litestar import Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, SkipValidation

from coldframe_echo.api import Call, Echo, EchoBody, EchoEvent, EchoOnce
from coldframe_echo.operations import ECHO, ECHO_ONCE
from host.function import Host
from host.http.response import JsonResponse
from host.http.sse import DONE, EventStream, frame


class EchoRenderer:
    """Each event is one frame of its own JSON."""

    def __call__(self, answer: EchoEvent) -> Iterable[bytes]:
        """Return the frame of one event."""
        return (frame(answer),)

    def end(self) -> Iterable[bytes]:
        """Return what OpenAI's streams end with."""
        return (DONE,)


@post("/v1/echo", status_code=200, tags=["echo"])
async def echo(data: JSONBody[EchoBody], host: NamedDependency[SkipValidation[Host]]) -> Response[Any]:
    """Say the text back."""
    options: dict[str, Any] = {field: getattr(data, field) for field in Call.__struct_fields__}
    if data.stream:
        return EventStream(host.stream(data.model, ECHO, Echo(**options)), EchoRenderer())
    return JsonResponse(await host.call(data.model, ECHO_ONCE, EchoOnce(**options)))
