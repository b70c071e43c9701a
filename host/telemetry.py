"""Metrics and logs: a plug-in that counts life-cycle events for `/metrics`, and the set-up of structured logging.

It only listens; nothing asks it whether it heard.
"""

from __future__ import annotations

import logging
import sys
from functools import cache
from typing import Any, TypeVar

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from host.events import (
    CallEnded,
    CallQueued,
    CallStarted,
    Died,
    Event,
    Evicted,
    FirstAnswer,
    Loaded,
    State,
    StateChanged,
)
from host.hooks import hookimpl

METRICS = CollectorRegistry()
_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)
_SHORT = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LONG = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(f"coldframe_{name}", text, ("model", *labels), buckets=buckets, registry=METRICS)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(f"coldframe_{name}", text, ("model", *labels), registry=METRICS)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"coldframe_{name}", text, ("model", *labels), registry=METRICS)


REQUESTS = _counter("requests", "Calls that ended, by outcome: ok, cancelled, or an error's code.", "outcome")
IN_FLIGHT = _gauge("requests_in_flight", "Calls an instance is answering.")
QUEUED = _gauge("requests_queued", "Calls that wait for a slot, a load or memory.")
QUEUE_SECONDS = _histogram("queue_seconds", "Seconds a call waited before it started.", _LONG)
LOAD_SECONDS = _histogram("load_seconds", "Seconds from the first waiting call to a loaded instance.", _LONG)
REQUEST_SECONDS = _histogram("request_seconds", "Seconds from a call's arrival to its end.", _LONG)
FIRST_SECONDS = _histogram("time_to_first_token_seconds", "Seconds from a call's arrival to its first answer.", _SHORT)
TOKENS = _counter(
    "tokens",
    "Tokens: prompt, completion, cached (of the prompt, not computed again), accepted or rejected (guessed ahead).",
    "kind",
)
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
        case CallQueued(waiting=waiting):
            _of(QUEUED, name).set(waiting)
        case CallStarted(waited=waited, waiting=waiting, in_flight=in_flight):
            _of(QUEUED, name).set(waiting)
            _of(IN_FLIGHT, name).set(in_flight)
            _of(QUEUE_SECONDS, name).observe(waited)
        case FirstAnswer(seconds=seconds):
            _of(FIRST_SECONDS, name).observe(seconds)
        case CallEnded():
            _ended(event)
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


def _ended(event: CallEnded) -> None:
    name = event.name
    _of(REQUESTS, name, event.outcome).inc()
    _of(IN_FLIGHT, name).set(event.in_flight)
    _of(QUEUED, name).set(event.waiting)
    _of(REQUEST_SECONDS, name).observe(event.seconds)
    for kind, number in (
        ("prompt", event.prompt_tokens),
        ("completion", event.completion_tokens),
        ("cached", event.cached_tokens),
        ("accepted", event.accepted_tokens),
        ("rejected", event.rejected_tokens),
    ):
        if number:
            _of(TOKENS, name, kind).inc(number)


def set_up_logging(form: str = "auto", level: str = "info") -> None:
    """Send structured lines to standard error: JSON, or for people on a terminal; request ids come along."""
    human = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if human else structlog.processors.JSONRenderer()
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    traces: list[Any] = [] if human else [structlog.processors.format_exc_info]
    structlog.configure(
        processors=[*shared, *traces, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries that speak through the standard library say only what matters.
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
