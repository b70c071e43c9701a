"""Serving the application with granian, in this process, until SIGTERM or SIGINT: then streams may end first."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import structlog

from host import app
from host.errors import ColdframeError
from host.request_log import LOG
from host.runtime import Runtime
from host.worker.garbage_collection import collect_seldom

if TYPE_CHECKING:
    from granian.server.embed import Server

log = structlog.get_logger(__name__)
_DEFAULTS: dict[str, Any] = {"backlog": 2048, "websockets": False, "log_enabled": False}
_LAST_FRAMES = 2.0


async def serve(runtime: Runtime, ready: Any = None) -> None:
    """Serve until asked to stop. `ready` is called with the URL once the socket listens."""
    from granian.constants import Interfaces
    from granian.server.embed import Server

    from host.http.rsgi import RsgiApp

    settings = runtime.settings
    port = _free_port(settings.address, settings.port)
    application = app.create(runtime)
    # ASGI is slower, and the interface that knows WebSockets here. RSGI has no lifespan of its own.
    interface = Interfaces.ASGI if settings.granian.get("websockets") else Interfaces.RSGI
    prefix = settings.granian.get("url_path_prefix") or ""
    server = Server(
        application if interface is Interfaces.ASGI else RsgiApp(application, prefix),
        address=settings.address,
        port=port,
        interface=interface,
        **{"backpressure": 2048, **_DEFAULTS, **settings.granian},
    )
    async with contextlib.AsyncExitStack() as life:
        if interface is Interfaces.RSGI:
            await life.enter_async_context(application.lifespan())
        collect_seldom()
        await _serve_until_signalled(runtime, server, life, lambda: _announce(ready, settings.address, port))


async def _serve_until_signalled(
    runtime: Runtime, server: Server, life: contextlib.AsyncExitStack, announce: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Serve until a signal comes, then let what goes on end, within bounds."""
    settings = runtime.settings
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    serving = loop.create_task(server.serve())
    serving.add_done_callback(lambda _: over.set())
    announcing = loop.create_task(announce())
    await over.wait()
    # Whoever presses Ctrl-C now means at once; the forkservers see their sockets close and end with their workers.
    loop.add_signal_handler(signal.SIGINT, _leave)
    announcing.cancel()
    ended = serving.done()
    log.info("stopping", grace=settings.grace)
    # Streams end before the server stops: it would wait for them without a bound.
    await runtime.dispatch.stop(settings.grace)
    await asyncio.sleep(0)
    with contextlib.suppress(TimeoutError, asyncio.CancelledError):
        server.stop()  # type: ignore[no-untyped-call]
        async with asyncio.timeout(settings.drain + settings.stop + _LAST_FRAMES):
            await serving
            await life.aclose()
    if ended:
        raise ColdframeError("the HTTP server ended by itself")


def _leave() -> None:
    """End at once, with what was logged so far."""
    LOG.flush()
    os._exit(128 + signal.SIGINT)


async def _announce(ready: Any, address: str, port: int) -> None:
    if ready is None:
        return
    host = "127.0.0.1" if address in ("0.0.0.0", "::") else address  # noqa: S104 - only compared
    while True:  # until the server listens, however slow the machine; a server that ends cancels this
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            break
        await asyncio.sleep(0.01)
    writer.close()
    ready(f"http://{host}:{port}")


def _free_port(address: str, port: int) -> int:
    """Return the port, or a free one for 0; raises a clear error when it is taken."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise ColdframeError(f"cannot listen on {address}:{port}: {error.strerror}") from None
        return int(probe.getsockname()[1])
