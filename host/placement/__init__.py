"""Where instances live; the plug-in that registers the built-in placements `process` and `inline`."""

from __future__ import annotations

from collections.abc import Sequence

from host.hooks import hookimpl
from host.placement.handle import Placement
from host.placement.inline import InlinePlacement
from host.placement.process import ProcessPlacement


@hookimpl
def coldframe_placements() -> Sequence[Placement]:
    """Register `process` and `inline`."""
    return (ProcessPlacement(), InlinePlacement())
