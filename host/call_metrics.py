"""Metrics of calls: plain numbers per model, counted on the event loop and read when `/metrics` is asked.

prometheus_client's own counters take a lock and check their labels each time; a call changes ten of them.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from host.function import Usage

SHORT = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LONG = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TOKENS = ("prompt", "completion", "cached", "accepted", "rejected")


class Seconds:
    """A histogram: how many values lie up to each bound, and their sum."""

    __slots__ = ("bounds", "counts", "created", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.created = time.time()

    def observe(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return Prometheus' buckets: each bound, and how many values are not over it."""
        found, below = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            found.append(("+Inf" if bound == float("inf") else repr(float(bound)), float(below)))
        return found


class CallMetrics:
    """The numbers of one model's calls."""

    __slots__ = ("begun", "created", "ended_by", "first", "in_flight", "queue", "queued", "request", "tokens")

    def __init__(self) -> None:
        self.created = time.time()
        self.ended_by: dict[str, int] = {}
        self.in_flight = 0
        self.queued = 0
        self.queue = Seconds(LONG)
        self.request = Seconds(LONG)
        self.first = Seconds(SHORT)
        self.tokens = dict.fromkeys(_TOKENS, 0)
        self.begun = False
        """Whether a call was ever given to an instance; before, there is nothing in flight to show."""

    def start(self, waited: float, waiting: int, in_flight: int) -> None:
        """Count a call that was given to the instance."""
        self.begun = True
        self.queued = waiting
        self.in_flight = in_flight
        self.queue.observe(waited)

    def end(self, outcome: str, seconds: float, waiting: int, in_flight: int, usage: Usage) -> None:
        """Count a call that is over."""
        self.ended_by[outcome] = self.ended_by.get(outcome, 0) + 1
        self.queued = waiting
        self.in_flight = in_flight
        self.request.observe(seconds)
        tokens = self.tokens
        if usage.prompt_tokens:
            tokens["prompt"] += usage.prompt_tokens
        if usage.completion_tokens:
            tokens["completion"] += usage.completion_tokens
        if usage.cached_tokens:
            tokens["cached"] += usage.cached_tokens
        if usage.accepted_tokens:
            tokens["accepted"] += usage.accepted_tokens
        if usage.rejected_tokens:
            tokens["rejected"] += usage.rejected_tokens


class CallCollector(Collector):
    """All models' numbers, as prometheus_client asks for them."""

    def __init__(self) -> None:
        self._models: dict[str, CallMetrics] = {}

    def of(self, model: str) -> CallMetrics:
        """Return the numbers of one model."""
        found = self._models.get(model)
        if found is None:
            found = self._models[model] = CallMetrics()
        return found

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of all models."""
        yield self._requests()
        yield self._gauge("requests_in_flight", "Calls an instance is answering.", "in_flight")
        yield self._gauge("requests_queued", "Calls that wait for a slot, a load or memory.", "queued")
        yield self._histogram("queue_seconds", "Seconds a call waited before it started.", "queue")
        yield self._histogram("request_seconds", "Seconds from a call's arrival to its end.", "request")
        text = "Seconds from a call's arrival to its first answer."
        yield self._histogram("time_to_first_token_seconds", text, "first")
        yield self._tokens()

    def _requests(self) -> Metric:
        text = "Calls that ended, by outcome: ok, cancelled, or an error's code."
        family = CounterMetricFamily("coldframe_requests", text, labels=("model", "outcome"))
        for model, numbers in self._models.items():
            for outcome, count in numbers.ended_by.items():
                family.add_metric((model, outcome), count, created=numbers.created)
        return family

    def _tokens(self) -> Metric:
        text = "Tokens: prompt, completion, cached (of the prompt, not computed again), accepted or rejected (guessed)."
        family = CounterMetricFamily("coldframe_tokens", text, labels=("model", "kind"))
        for model, numbers in self._models.items():
            for kind, count in numbers.tokens.items():
                if count:
                    family.add_metric((model, kind), count, created=numbers.created)
        return family

    def _gauge(self, name: str, text: str, field: str) -> Metric:
        family = GaugeMetricFamily(f"coldframe_{name}", text, labels=("model",))
        for model, numbers in self._models.items():
            if numbers.begun or field == "queued":
                family.add_metric((model,), getattr(numbers, field))
        return family

    def _histogram(self, name: str, text: str, field: str) -> Metric:
        family = HistogramMetricFamily(f"coldframe_{name}", text, labels=("model",))
        for model, numbers in self._models.items():
            seconds: Seconds = getattr(numbers, field)
            if any(seconds.counts):
                family.add_metric((model,), seconds.buckets(), seconds.total)
        return family


CALLS = CallCollector()
"""Counted where calls are passed on, not by events: those are made only where somebody observes them."""
