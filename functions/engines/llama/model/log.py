"""llama.cpp's log: the last lines are kept for error messages, and `listen` collects lines while a block runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from functions.engines.llama.model.native_library import lib

DEBUG, WARNING, CONTINUED = 1, 3, 5
_KEPT = 400

LogLines = list[tuple[int, str]]
"""Lines with their levels."""

_lines: deque[tuple[int, str]] = deque(maxlen=_KEPT)
_listeners: list[tuple[LogLines, bool]] = []
"""(lines, whether debug lines are included) of each listener."""


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
def listen(*, debug: bool = False) -> Iterator[LogLines]:
    """Collect the (level, line) pairs logged within the `with` block; `debug` takes the lines for debugging as well."""
    lines: LogLines = []
    _listeners.append((lines, debug))
    try:
        yield lines
    finally:
        # By identity: nested listeners may have equal lines.
        _listeners[:] = [one for one in _listeners if one[0] is not lines]


def reason(lines: LogLines, path: str) -> str:
    """Return llama.cpp's own error message, without the file's folder; empty if there is none."""
    errors = [line.partition(": ")[2] or line for level, line in lines if level > WARNING and level != CONTINUED]
    errors = errors or [line for level, line in lines if level == WARNING]
    message = "; ".join(dict.fromkeys(line.strip() for line in errors[:3]))
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


def ran_out_of_memory(lines: LogLines) -> bool:
    """Return whether any of the lines reports a failed allocation."""
    return any(marker in line.lower() for _, line in lines for marker in _OUT_OF_MEMORY)
