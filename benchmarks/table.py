"""Rows of results against bounds, and the table they are printed as."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value. `bound` is what it must not exceed, or must reach when `at_least`; None only informs."""

    what: str
    value: float | None
    unit: str = ""
    bound: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def verdict(self) -> str:
        """`ok`, `over`, `under`, or why there is none."""
        if self.value is None:
            return "not measured"
        if self.bound is None:
            return ""
        if self.at_least:
            return "ok" if self.value >= self.bound else "under"
        return "ok" if self.value <= self.bound else "over"


def show(rows: list[Row]) -> str:
    """Return the table as Markdown."""
    lines = ["| what | measured | bound | | note |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        value = "" if row.value is None else f"{row.value:.3g} {row.unit}".strip()
        sign = "≥" if row.at_least else "≤"
        bound = "" if row.bound is None else f"{sign} {row.bound:g} {row.unit}".strip()
        lines.append(f"| {row.what} | {value} | {bound} | {row.verdict} | {row.note} |")
    return "\n".join(lines)
