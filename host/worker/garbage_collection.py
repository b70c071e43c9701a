"""Python's collector of reference cycles, set for processes that keep much and throw away little."""

from __future__ import annotations

import gc

YOUNG = 10_000
"""Objects made and not freed by their count, after which the youngest are looked through; Python's own is 700."""


def collect_seldom() -> None:
    """Look through new objects less often, and through those that are there now never again.

    What was imported and loaded stays until the process ends; a request leaves few cycles or none.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 10, 10)
