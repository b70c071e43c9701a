"""Logs of commands that are no server: they would stand in the way of the output, so little of them is shown."""

from __future__ import annotations


def set_up(level: str = "critical") -> None:
    """Send log lines of at least this level to standard error. Below, what matters comes back as an error anyway."""
    from host.telemetry import set_up_logging

    set_up_logging("auto", level)
