"""The two operations: the same question answered token by token, or at once."""

from __future__ import annotations

from coldframe_echo.api import Echo, EchoAnswer, EchoEvent, EchoOnce
from host.function import Operation

ECHO: Operation[Echo, EchoEvent] = Operation(name="echo", request=Echo, answer=EchoEvent, streams=True, path="/v1/echo")
ECHO_ONCE: Operation[EchoOnce, EchoAnswer] = Operation(
    name="echo_once", request=EchoOnce, answer=EchoAnswer, path="/v1/echo"
)
