"""`/livez`, `/readyz`, `/health` and `/metrics`: for probes, people and Prometheus. None of them wakes anything."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import msgspec
from litestar import HttpMethod, Response, get, route
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from host import __version__, machine
from host.errors import ShuttingDown
from host.routes.runtime_dependency import RuntimeDependency
from host.runtime import Runtime
from host.state import State
from host.telemetry import METRICS

_STARTED = time.time()
_PROBES = (HttpMethod.GET, HttpMethod.HEAD)
_DISTRIBUTIONS = ("litestar", "granian", "huggingface-hub")
"""The host's own whose versions are shown, beside those that engines name."""


class Alive(msgspec.Struct, kw_only=True, frozen=True):
    """The process runs."""

    status: Literal["ok"] = "ok"


class Health(msgspec.Struct, kw_only=True, frozen=True):
    """The host and what is in it, at a glance. Sizes in bytes."""

    status: Literal["ok", "stopping"]
    version: str
    uptime: float
    pid: int
    device: dict[str, Any]
    versions: dict[str, str]
    loaded: list[str]
    functions: int
    memory: dict[str, dict[str, int]]
    """By pool: the budget, and how much of it is reserved."""
    disabled: dict[str, str]
    """What is disabled -> why."""
    remote_code: list[str]
    """Models whose manifests let Python code of the model's own folder run."""
    problems: int
    """Manifests that are not served as they stand; `/v1/functions` lists them."""


@route("/livez", http_method=_PROBES, summary="Whether the process runs")
async def livez() -> Alive:
    """Answer at once, whatever is loading."""
    return Alive()


@route("/readyz", http_method=_PROBES, summary="Whether calls are taken")
async def readyz(runtime: RuntimeDependency) -> Alive:
    """Answer 200 while calls are taken, cold models included, and 503 while shutting down."""
    if runtime.dispatch.stopping:
        raise ShuttingDown("The host is shutting down.")
    return Alive()


@route("/health", http_method=_PROBES, summary="The host at a glance")
async def health(runtime: RuntimeDependency) -> Health:
    """Return devices, versions, what is loaded and what is disabled, and why."""
    budget = runtime.budget
    return Health(
        status="stopping" if runtime.dispatch.stopping else "ok",
        version=__version__,
        uptime=round(time.time() - _STARTED, 1),
        pid=os.getpid(),
        device=_device(runtime),
        versions=_versions(runtime),
        loaded=[d.name for d in runtime.catalog if d.state is State.READY],
        functions=len(runtime.catalog),
        memory={pool: {"budget": total, "reserved": budget.held(pool)} for pool, total in budget.totals.items()},
        disabled=runtime.registry.disabled,
        remote_code=[d.name for d in runtime.catalog if runtime.registry.consents(d.manifest, d.function)],
        problems=len(runtime.catalog.problems),
    )


@get("/metrics", summary="Metrics for Prometheus")
async def metrics() -> Response[bytes]:
    """Return the metrics in Prometheus' text format."""
    return Response(content=generate_latest(METRICS), headers={"content-type": CONTENT_TYPE_LATEST})


def _device(runtime: Runtime) -> dict[str, Any]:
    """Return what is known without touching a device: accelerators are reported by workers."""
    return {
        "platform": platform.platform(terse=True),
        "machine": platform.machine(),
        "cores": runtime.settings.threads,
        "memory_total": machine.memory_total(),
        "memory_available": machine.memory_available(),
        "accelerators": sorted(pool for pool in runtime.budget.totals if pool != "ram"),
    }


def _versions(runtime: Runtime) -> dict[str, str]:
    found = {"python": platform.python_version()}
    engines = runtime.registry.engines.values()
    for name in (*_DISTRIBUTIONS, *(name for engine in engines for name in engine.distributions)):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
