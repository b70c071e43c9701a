"""llama.cpp's log: the last lines are kept for error messages, and `listen` collects lines while a block runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from functions.engines.llama.model.library import lib

DEBUG, WARNING, CONTINUED = 1, 3, 5
_KEPT = 400

Heard = list[tuple[int, str]]
"""Lines with their levels."""

_lines: deque[tuple[int, str]] = deque(maxlen=_KEPT)
_listeners: list[tuple[Heard, bool]] = []
"""Where lines go, and whether those for debugging go there too."""


def _take(level: int, text: bytes | None, _: Any) -> None:
    """Keep one line; llama.cpp calls this from any of its threads."""
    if not text:
        return
    if level == DEBUG:
        for listener, curious in _listeners:
            if curious:
                listener.append((level, text.decode("utf-8", "replace").rstrip("\n")))
        return
    message = text.decode("utf-8", "replace").rstrip("\n")
    if level == CONTINUED:
        level = _lines[-1][0] if _lines else CONTINUED
    if message.strip(". "):
        _lines.append((level, message))
        for listener, _ in _listeners:
            listener.append((level, message))


_callback = lib.llama_log_callback(_take)
lib.llama_log_set(_callback, None)


@contextmanager
def listen(*, debug: bool = False) -> Iterator[Heard]:
    """Collect the (level, line) pairs said within the `with` block; `debug` takes the lines for debugging as well."""
    heard: Heard = []
    _listeners.append((heard, debug))
    try:
        yield heard
    finally:
        # By identity: listeners within each other may have heard the same.
        _listeners[:] = [one for one in _listeners if one[0] is not heard]


def reason(heard: Heard, path: str) -> str:
    """Return llama.cpp's own words for what went wrong, without the file's folder; empty if it said none."""
    said = [line.partition(": ")[2] or line for level, line in heard if level > WARNING and level != CONTINUED]
    said = said or [line for level, line in heard if level == WARNING]
    message = "; ".join(dict.fromkeys(line.strip() for line in said[:3]))
    return message.replace(path, Path(path).name)


_OUT_OF_MEMORY = (
    "failed to allocate",
    "unable to allocate",
    "out of memory",
    "cudamalloc failed",
    "insufficient memory",
    "outofdevicememory",
    "bad_alloc",
    "cannot allocate memory",
)


def ran_out_of_memory(heard: Heard) -> bool:
    """Say whether any of the lines tells of memory that could not be had."""
    return any(marker in line.lower() for _, line in heard for marker in _OUT_OF_MEMORY)
