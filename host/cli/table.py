"""Rows as aligned columns of plain text: one line for each, so that grep and awk can read them as well as people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the lines, headed in capitals; None shows as `-`. Control characters never reach the terminal."""
    cells = [[name.upper() for name in head], *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "\n".join(lines)


def clean(text: str) -> str:
    """Return text from elsewhere as one printable line."""
    return "".join(character if character.isprintable() else " " for character in text)


def span(seconds: float | None) -> str:
    """Return a time as manifests spell it: `45s`, `4m10s`, `never`."""
    if seconds is None or seconds == float("inf"):
        return "never"
    if 0 < seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    whole, words = round(seconds), ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, size)
        words += f"{count}{unit}" if count else ""
    return words


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else clean(str(value))
