"""Metrics and logs: a plug-in that counts life-cycle events for `/metrics`, and the set-up of structured logging."""

from __future__ import annotations

import logging
import sys
from functools import cache
from typing import Any, TextIO, TypeVar, cast

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from host.call_metrics import CALLS, LONG
from host.events import Died, Event, Evicted, Loaded, StateChanged
from host.hooks import hookimpl
from host.request_log import LOG, LogStream, add_request_id
from host.state import State

METRICS = CollectorRegistry()
METRICS.register(CALLS)
_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(f"coldframe_{name}", text, ("model", *labels), buckets=buckets, registry=METRICS)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(f"coldframe_{name}", text, ("model", *labels), registry=METRICS)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"coldframe_{name}", text, ("model", *labels), registry=METRICS)


LOAD_SECONDS = _histogram("load_seconds", "Seconds from the first waiting call to a loaded instance.", LONG)
EVICTIONS = _counter("evictions", "Instances stopped on purpose, by reason.", "reason")
DEATHS = _counter("deaths", "Instances whose process ended by itself.")
BYTES = _gauge("bytes", "Bytes reserved by the loaded instance, by memory pool.", "pool")
LOADED = _gauge("loaded", "1 while an instance is ready.")


@cache
def _of(metric: _Metric, *labels: str) -> _Metric:
    """Return a metric's child for these labels; looking it up by prometheus_client takes a lock and longer."""
    return metric.labels(*labels)


@hookimpl
def coldframe_event(event: Event) -> None:
    """Count an event."""
    name = event.name
    match event:
        case Loaded(seconds=seconds, bytes=bytes_):
            _of(LOAD_SECONDS, name).observe(seconds)
            for pool, number in bytes_.items():
                BYTES.labels(name, pool).set(number)  # not through `_of`: it is removed again
        case Evicted(reason=reason):
            _of(EVICTIONS, name, reason).inc()
        case Died():
            _of(DEATHS, name).inc()
        case StateChanged(new=new):
            _of(LOADED, name).set(1 if new is State.READY else 0)
            if new is State.COLD:
                BYTES.remove_by_labels({"model": name})


def set_up_logging(form: str = "auto", level: str = "info") -> None:
    """Send structured lines to standard error: JSON, or for people on a terminal; request ids come along."""
    human = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if human else structlog.processors.JSONRenderer()
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        add_request_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    stream = LogStream(sys.stderr)
    number: int = getattr(logging, level.upper())
    LOG.use(stream if not human and number <= logging.INFO else None)
    traces: list[Any] = [] if human else [structlog.processors.format_exc_info]
    structlog.configure(
        processors=[*shared, *traces, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", stream)),
        cache_logger_on_first_use=True,
    )
    # Libraries that speak through the standard library say only what matters.
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
