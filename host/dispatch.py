"""The way of a call: find its deployment, wait for a slot, pass request and answers, give the slot back.

This is the `Host` that handlers, tests and programs call, with or without HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from host.call_metrics import CALLS
from host.catalog import Catalog
from host.errors import ColdframeError, InvalidRequest, ShuttingDown, from_body
from host.events import CallEnded, CallQueued, CallStarted, Event, FirstAnswer
from host.function import Answer, Operation, Stream, Usage
from host.lifecycle.deployment import Deployment, Superseded
from host.placement.pending_call import END, PendingCall

_NO_USAGE = Usage()


class Dispatch:
    """Answers calls by the deployments of a catalog."""

    def __init__(self, catalog: Catalog, observe: Callable[[Event], None], observed: Callable[[], bool]) -> None:
        self._catalog = catalog
        self.observe = observe
        self.observed = observed
        """Whether anybody observes events: those of calls are made only then."""
        self._calls: set[_Call] = set()
        self._stopping = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def stopping(self) -> bool:
        """Whether calls are refused because the host is shutting down."""
        return self._stopping.is_set()

    async def stopped(self) -> None:
        """Return when the host begins to shut down."""
        await self._stopping.wait()

    async def call(self, model: str, operation: Operation[Any, Answer], request: Any) -> Answer:
        """Answer one request of an operation with a single answer."""
        call = _Call(self, model, operation, request)
        try:
            return await call.only()  # type: ignore[no-any-return]
        finally:
            call.close()

    async def collect(self, model: str, operation: Operation[Any, Answer], request: Any) -> list[Answer]:
        """Answer one request of a streaming operation with all its answers, which leave the model's process as one."""
        call = _Call(self, model, operation, request, whole=True)
        try:
            return await call.only()  # type: ignore[no-any-return]
        finally:
            call.close()

    def stream(self, model: str, operation: Operation[Any, Answer], request: Any) -> Stream[Answer]:
        """Return the answers of a streaming operation, to be iterated and closed."""
        return _Answers(_Call(self, model, operation, request))

    async def stop(self, grace: float) -> int:
        """Refuse new calls, let the others end within `grace` seconds, fail the rest; returns how many were failed."""
        if self.stopping:
            grace = 0.0  # they had their time
        self._stopping.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), grace)
        left = list(self._calls)
        for call in left:
            call.fail(ShuttingDown("The host is shutting down."))
        return len(left)

    def find(self, model: str, operation: Operation[Any, Any]) -> Deployment:
        """Return the deployment that answers `operation` as `model`; raises `ModelNotFound`, `InvalidRequest`."""
        if self.stopping:
            raise ShuttingDown("The host is shutting down.", retry_after=5.0)
        if not isinstance(model, str):
            raise InvalidRequest("`model`: name the model to use.", param="model")
        if not model:
            return self._only(operation)
        deployment = self._catalog.find(model)
        if not _answers(deployment, operation):
            raise InvalidRequest(
                f"The model `{model}` serves {deployment.function.name}; this endpoint needs {operation.name}.",
                param="model",
            )
        return deployment

    def served_name(self, model: str | None, operation: Operation[Any, Any]) -> str:
        """Return `model`, or where it is None or empty, the name of the one deployment that answers `operation`."""
        return model or self._only(operation).name

    def _only(self, operation: Operation[Any, Any]) -> Deployment:
        """Return the one deployment that answers `operation`, for dialects whose requests name no model."""
        able = [deployment for deployment in self._catalog if _answers(deployment, operation)]
        if operation.option is not None:
            able = [deployment for deployment in able if deployment.manifest.options.get(operation.option)]
        if len(able) != 1:
            names = ", ".join(sorted(deployment.name for deployment in able)) or "no model yet"
            words = f"`model`: name the model to use; served for {operation.name}: {names}."
            raise InvalidRequest(words, param="model")
        return able[0]

    def entered(self, call: _Call) -> None:
        """Count a call in."""
        self._calls.add(call)
        self._empty.clear()

    def left(self, call: _Call) -> None:
        """Count a call out."""
        self._calls.discard(call)
        if not self._calls:
            self._empty.set()


def _answers(deployment: Deployment, operation: Operation[Any, Any]) -> bool:
    operations = deployment.function.operations
    return operation in operations or any(operation.name == own.name for own in operations)


class _Call:
    """One call from its first wait to its end. `next` may be awaited by one task at a time."""

    __slots__ = ("_began", "_deployment", "_dispatch", "_exchange", "_failure", "_first", "_holds", "_model",
                 "_operation", "_outcome", "_request", "_task", "_usage", "_waits_for", "_whole")  # fmt: skip

    def __init__(
        self, dispatch: Dispatch, model: str, operation: Operation[Any, Any], request: Any, *, whole: bool = False
    ) -> None:
        self._dispatch = dispatch
        self._model = model
        self._operation = operation
        self._request = request
        self._whole = whole
        self._holds = False
        self._began = time.perf_counter()
        self._waits_for: Deployment | None = None
        self._deployment: Deployment | None = None
        self._exchange: PendingCall | None = None
        self._first = operation.streams and not whole
        self._outcome = "cancelled"
        self._usage = _NO_USAGE
        self._task: asyncio.Task[Any] | None = None
        self._failure: ColdframeError | None = None

    async def only(self) -> Any:
        """Return the one answer of the call, or the list of all of them where it is asked as a whole."""
        answer = await self.next()
        if answer is END:
            raise ColdframeError("The model ended the call without an answer.")
        exchange = self._exchange
        if exchange is not None and exchange.over and exchange.empty:
            self._outcome = "ok"
        else:
            await self.next()  # the end: only then is the call over where it was answered
        return answer

    async def next(self) -> Any:
        """Return the next answer or `END`; the first time, wait for a slot before."""
        if self._failure is not None:
            raise self._failure
        self._task = task = asyncio.current_task()
        try:
            exchange = self._exchange or await self._begin()
            answer = await exchange.next()
        except ColdframeError as error:
            self._outcome = error.code
            raise
        except asyncio.CancelledError:
            failure: ColdframeError | None = self._failure  # set by `fail` meanwhile
            if failure is None:
                raise
            self._outcome = failure.code
            if task is not None:
                task.uncancel()  # the cancellation was `fail`'s, and ends here
            raise failure from None
        finally:
            self._task = None
        if answer is END:
            self._outcome = "ok"
        else:
            self._note(answer)
        return answer

    def close(self) -> None:
        """Give the call up, or confirm its end: the slot is free after this. Safe to call twice."""
        if self._exchange is not None:
            self._exchange.cancel()
        self._release()
        deployment, self._deployment = self._deployment, None
        if deployment is not None:
            self._ended(deployment, self._outcome)
        self._dispatch.left(self)

    def fail(self, error: ColdframeError) -> None:
        """Have whoever waits for the next answer meet `error` instead."""
        self._failure = from_body(error.body())
        if self._task is not None:
            self._task.cancel()

    def stage(self) -> str:
        """Return what is being waited for, in a few words."""
        return self._waits_for.stage() if self._waits_for is not None and self._exchange is None else "working"

    async def _begin(self) -> PendingCall:
        self._operation.check(self._request)
        self._dispatch.entered(self)
        while True:
            self._waits_for = deployment = self._dispatch.find(self._model, self._operation)
            try:
                return await self._enter(deployment)
            except Superseded:
                await asyncio.sleep(0)  # its manifest changed while it waited: look it up again

    async def _enter(self, deployment: Deployment) -> PendingCall:
        self._queued(deployment)
        try:
            link = await deployment.acquire()
        except BaseException as error:
            known = error if isinstance(error, ColdframeError) else self._failure
            outcome = known.code if known is not None else "cancelled"
            if not isinstance(error, Superseded):
                self._ended(deployment, outcome)
            raise
        self._deployment, self._holds = deployment, True
        self._started(deployment)
        if self._whole:
            self._exchange = link.call(self._operation, self._request, whole=True)
        else:
            self._exchange = link.call(self._operation, self._request)
        if not self._exchange.over:
            self._exchange.on_over = self._release
        return self._exchange

    def _release(self) -> None:
        """Give the slot back, as soon as the last answer is made: the taker may be slow."""
        if self._holds:
            self._holds = False
            assert self._deployment is not None
            self._deployment.release()

    def _queued(self, deployment: Deployment) -> None:
        waiting = deployment.waiting + 1
        CALLS.of(deployment.name).queued = waiting
        if self._dispatch.observed():
            self._dispatch.observe(CallQueued(name=deployment.name, task=deployment.function.name, waiting=waiting))

    def _started(self, deployment: Deployment) -> None:
        waited = time.perf_counter() - self._began
        waiting, in_flight = deployment.waiting, deployment.in_flight
        CALLS.of(deployment.name).start(waited, waiting, in_flight)
        if self._dispatch.observed():
            name, task = deployment.name, deployment.function.name
            self._dispatch.observe(
                CallStarted(name=name, task=task, waited=waited, waiting=waiting, in_flight=in_flight)
            )

    def _ended(self, deployment: Deployment, outcome: str) -> None:
        seconds = time.perf_counter() - self._began
        waiting, in_flight, usage = deployment.waiting, deployment.in_flight, self._usage
        CALLS.of(deployment.name).end(outcome, seconds, waiting, in_flight, usage)
        if self._dispatch.observed():
            event = CallEnded(
                name=deployment.name,
                task=deployment.function.name,
                outcome=outcome,
                seconds=seconds,
                waiting=waiting,
                in_flight=in_flight,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                cached_tokens=usage.cached_tokens,
                accepted_tokens=usage.accepted_tokens,
                rejected_tokens=usage.rejected_tokens,
            )
            self._dispatch.observe(event)

    def _note(self, answer: Any) -> None:
        if self._whole:
            for part in answer:
                self._count(part)
            self._first_came(self._exchange.first if self._exchange is not None else None)
            return
        self._count(answer)
        if self._first:
            self._first = False
            self._first_came(time.perf_counter())

    def _count(self, answer: Any) -> None:
        usage = getattr(answer, "usage", None)
        if usage is not None:
            self._usage = usage

    def _first_came(self, at: float | None) -> None:
        deployment = self._deployment
        if deployment is None or at is None:
            return
        seconds = at - self._began
        CALLS.of(deployment.name).first.observe(seconds)
        if self._dispatch.observed():
            self._dispatch.observe(FirstAnswer(name=deployment.name, task=deployment.function.name, seconds=seconds))


class _Answers:
    """A `Stream` over a call."""

    __slots__ = ("_call", "_over")

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._over = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._over:
            raise StopAsyncIteration
        try:
            answer = await self._call.next()
        except BaseException:
            self._finish()
            raise
        if answer is END:
            self._finish()
            raise StopAsyncIteration
        return answer

    async def aclose(self) -> None:
        self._finish()

    def stage(self) -> str:
        return self._call.stage()

    def _finish(self) -> None:
        if not self._over:
            self._over = True
            self._call.close()
