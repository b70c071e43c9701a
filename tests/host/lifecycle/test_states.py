"""The states of a deployment: every transition that the table has is taken, and every other one refused."""

import re

import pytest
import structlog

from host.events import StateChanged
from host.lifecycle.record import Record
from host.state import IllegalTransition, State

LEGAL = {
    ("cold", "planning"),
    ("planning", "loading"),
    ("planning", "cold"),
    ("planning", "failed"),
    ("loading", "ready"),
    ("loading", "planning"),
    ("loading", "cold"),
    ("loading", "failed"),
    ("ready", "draining"),
    ("ready", "cold"),
    ("draining", "cold"),
    ("failed", "planning"),
}
WAYS = {
    "cold": (),
    "planning": ("planning",),
    "loading": ("planning", "loading"),
    "ready": ("planning", "loading", "ready"),
    "draining": ("planning", "loading", "ready", "draining"),
    "failed": ("planning", "failed"),
}


@pytest.mark.parametrize("new", State)
@pytest.mark.parametrize("old", State)
def test_every_pair_of_states(old, new):
    events = []
    record = Record("a", "echo", events.append)
    for state in WAYS[old]:
        record.enter(State(state), "on the way")
    events.clear()
    if (old, new) in LEGAL:
        record.enter(new, "why")
        assert (record.state, record.reason) == (new, "why")
        (event,) = events
        assert isinstance(event, StateChanged)
        assert (event.old, event.new, event.reason) == (old, new, "why")
        return
    with structlog.testing.capture_logs() as logged, pytest.raises(IllegalTransition, match=f"from {old} to {new}"):
        record.enter(new, "why")
    assert record.state is old
    assert not events
    assert [(line["event"], line["log_level"], line["old"], line["new"]) for line in logged] == [
        ("illegal transition", "error", old, new)
    ]


def test_the_docstring_has_the_table_that_is_enforced():
    rows = re.findall(r"^ *\| ([a-z, ]+) \| ([a-z]+) \|", State.__doc__, re.MULTILINE)
    listed = {(old, new) for many, new in rows for old in many.split(", ") if old != "from"}
    assert listed == LEGAL
    assert listed == {(old.value, new.value) for old in State for new in State if old.may_become(new)}
