"""A progress line on a terminal's standard error, overwritten with what a command waits for."""

from __future__ import annotations

import shutil
import sys
from types import TracebackType
from typing import Self

from host.cli.table import clean


class Line:
    """The line; gone when the context ends. Where standard error is no terminal, nothing is shown."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.clear()

    def show(self, text: str) -> None:
        """Show the text instead of the one before."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\x1b[K{clean(text)[:width]}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Leave no trace of it."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
