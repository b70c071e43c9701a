"""The record of one deployment: state, plan, progress, counters, last error. Every change is sent as an event.

Transitions between states are checked here against the table of `host.state.State`; the deployment decides on them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from host.errors import ColdframeError
from host.events import Died, Event, Evicted, Loaded, LoadProgressed, StateChanged
from host.function import Plan
from host.lifecycle.status import LastError, LoadProgress
from host.placement.handle import ExitInfo
from host.state import IllegalTransition, State

log = structlog.get_logger(__name__)


class Record:
    """The facts of one deployment, as its owner enters them."""

    def __init__(self, name: str, task: str, observe: Callable[[Event], None]) -> None:
        self.name = name
        self.task = task
        self.state = State.COLD
        self.since = time.time()
        self.reason = ""
        """Why it is in this state."""
        self.entered = time.monotonic()
        self.error: ColdframeError | None = None
        """What the load failed with, while the state is `failed`."""
        self.plan: Plan | None = None
        self.bytes: dict[str, int] = {}
        self.advance: LoadProgress | None = None
        self.last_error: LastError | None = None
        self.loads = 0
        self.evictions = 0
        self._observe = observe

    @property
    def coming_up(self) -> bool:
        """Whether a load is under way."""
        return self.state in (State.PLANNING, State.LOADING)

    @property
    def progress(self) -> LoadProgress | None:
        """How far the load under way is; None when there is none."""
        return self.advance if self.coming_up else None

    def enter(self, state: State, reason: str) -> None:
        """Go to a state, in which `bytes` are empty when no memory is held there.

        Raises `IllegalTransition`, and changes nothing, when the present state does not lead to it.
        """
        old = self.state
        if not old.may_become(state):
            log.error("illegal transition", name=self.name, old=old, new=state, reason=reason)
            raise IllegalTransition(f"`{self.name}` cannot go from {old} to {state} ({reason})")
        self.state, self.since, self.reason, self.entered = state, time.time(), reason, time.monotonic()
        self.error = None
        if state in (State.COLD, State.PLANNING, State.FAILED):
            self.bytes = {}
        self._observe(StateChanged(name=self.name, task=self.task, old=old, new=state, reason=reason))

    def progressed(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Note how far a load is."""
        self.advance = LoadProgress(stage=stage, done=done, total=total)
        self._observe(LoadProgressed(name=self.name, task=self.task, stage=stage, done=done, total=total))

    def admitted(self, plan: Plan) -> None:
        """Note that a plan's bytes are reserved and its weights are loaded now."""
        self.plan, self.bytes = plan, plan.bytes
        self.progressed("loading")
        self.enter(State.LOADING, "admitted")

    def loaded(self, plan: Plan, seconds: float) -> None:
        """Note that an instance is up, after so many seconds."""
        self.plan = plan
        self.loads += 1
        self.enter(State.READY, f"loaded in {seconds:.2f} s")
        self._observe(Loaded(name=self.name, task=self.task, seconds=seconds, bytes=plan.bytes))

    def failed(self, error: ColdframeError) -> None:
        """Note why a load failed."""
        self.last_error = LastError(at=time.time(), code=error.code, message=error.message)
        self.enter(State.FAILED, error.message)
        self.error = error

    def died(self, ending: ExitInfo) -> None:
        """Note how an instance ended by itself."""
        message = f"The model's process ended: {ending.how}."
        self.last_error = LastError(at=time.time(), code="instance_died", message=message, log=ending.log)
        self._observe(Died(name=self.name, task=self.task, how=ending.how, log=ending.log))
        log.warning("instance died", name=self.name, how=ending.how)

    def evicted(self, reason: str) -> None:
        """Note that an instance was stopped on purpose."""
        self.evictions += 1
        self._observe(Evicted(name=self.name, task=self.task, reason=reason))
