"""The hooks a plug-in may implement: the whole list of ways to extend coldframe. docs/plugins.md describes each.

Mark implementations with `hookimpl` and name the module in the entry-point group `coldframe`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from host.events import Event
    from host.function import Engine, Function, Source
    from host.placement.handle import Placement

GROUP = "coldframe"

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@hookspec
def coldframe_functions() -> Sequence[Function]:  # type: ignore[empty-body]
    """Register capabilities: what a manifest's `task` may name."""


@hookspec
def coldframe_engines() -> Sequence[Engine]:  # type: ignore[empty-body]
    """Register what runs weights: what a manifest's `engine` may name."""


@hookspec
def coldframe_sources() -> Sequence[Source]:  # type: ignore[empty-body]
    """Register where models come from; the first source that claims a manifest's `model` resolves it."""


@hookspec
def coldframe_placements() -> Sequence[Placement]:  # type: ignore[empty-body]
    """Register where instances live: what a manifest's `placement` may name."""


@hookspec
def coldframe_event(event: Event) -> None:
    """Observe one event of an instance's life. Called on the host's event loop: return at once, raise nothing."""
