"""An input as the turns of a conversation: who says what, one after the other, each in plain text.

Calls of tools and what came of them are turns as well, since few chat templates know tools. It knows no template.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from functions.decide.api import DecisionRequest, InputItem
from functions.decide.checks import CALLS, OUTPUTS
from functions.decide.texts import text


class Turn(NamedTuple):
    """What one side says."""

    role: str
    """`system`, `user` or `assistant`."""
    text: str


def turns(request: DecisionRequest, system: str) -> list[Turn]:
    """Return the input's turns, in order; it begins with `system` where it brings no such message of its own.

    What one side says in a row is one turn, for many templates insist on taking turns.
    """
    if isinstance(request.input, str):
        return [Turn("system", system), Turn("user", request.input)]
    said = list(_items(request.input))
    if not any(turn.role == "system" for turn in said):
        said.insert(0, Turn("system", system))
    return joined(said)


def joined(said: Sequence[Turn]) -> list[Turn]:
    """Return the turns with neighbours of one role as one."""
    found: list[Turn] = []
    for turn in said:
        if found and found[-1].role == turn.role:
            found[-1] = Turn(turn.role, f"{found[-1].text}\n\n{turn.text}")
        else:
            found.append(turn)
    return found


def tame(said: Sequence[Turn], *, knows_system: bool) -> list[Turn]:
    """Return turns that any template takes: a system message first or none, then the user, then in turn."""
    found = [
        Turn("user", turn.text) if turn.role == "system" and (at or not knows_system) else turn
        for at, turn in enumerate(said)
    ]
    start = 1 if found and found[0].role == "system" else 0
    if found[start:] and found[start].role == "assistant":
        found.insert(start, Turn("user", "…"))
    return joined(found)


def _items(items: Sequence[InputItem]) -> Iterator[Turn]:
    names: dict[str, str] = {}
    for item in items:
        kind = item.type or "message"
        if kind in CALLS:
            names[item.call_id or ""] = item.name or ""
            yield Turn("assistant", f"Call of {item.name}: {getattr(item, CALLS[kind])}")
        elif kind in OUTPUTS:
            yield Turn("user", f"Result of {names.get(item.call_id or '', '')}: {text(item.output)}")
        else:
            role = "system" if item.role == "developer" else item.role or "user"
            yield Turn(role, text(item.content))
