"""The states of a deployment and the transitions between them; `host.lifecycle.deployment` goes through them."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a deployment: one of six, changed only as this table allows.

    | from | to | when |
    | --- | --- | --- |
    | cold | planning | a call or `load` wants an instance |
    | planning | loading | the plan's bytes are reserved |
    | planning, loading | cold | nobody waits for the load any more |
    | planning, loading | failed | the load failed |
    | loading | planning | the load ran out of memory, and is tried once more with less |
    | loading | ready | the instance is up |
    | ready | draining | it is idle, unloaded, evicted, changed or shut down: no call starts any more |
    | ready, draining | cold | the instance ended: after draining, or because it died |
    | failed | planning | it is wanted again, after the cool-down |
    """

    COLD = "cold"
    PLANNING = "planning"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"

    def may_become(self, new: State) -> bool:
        """Return whether the table has the transition from this state to `new`."""
        return new in _TRANSITIONS[self]


_TRANSITIONS = {
    State.COLD: (State.PLANNING,),
    State.PLANNING: (State.LOADING, State.COLD, State.FAILED),
    State.LOADING: (State.READY, State.PLANNING, State.COLD, State.FAILED),
    State.READY: (State.DRAINING, State.COLD),
    State.DRAINING: (State.COLD,),
    State.FAILED: (State.PLANNING,),
}


class IllegalTransition(RuntimeError):
    """A deployment was to enter a state that its own does not lead to: a mistake in the host."""
