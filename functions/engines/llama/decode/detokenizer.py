"""Streaming detokenizer: never splits UTF-8 characters, and holds back text that may begin a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

_decoder = codecs.getincrementaldecoder("utf-8")


class StopScanner:
    """Finds stop strings across the borders of pieces; text that may begin one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found: str | None = None
        """The stop string that ended the text."""

    def feed(self, text: str) -> str:
        """Return what can be shown for certain. The match that is complete first wins; nothing comes after it."""
        if not self._stops or self.found is not None:
            return "" if self.found is not None else text
        text = self._held + text
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            _, at, self.found = min(ends)
            self._held = ""
            return text[:at]
        keep = max(_overlap(text, stop) for stop in self._stops)
        shown, self._held = text[: len(text) - keep], text[len(text) - keep :]
        return shown

    def flush(self) -> str:
        """Return what was held back and did not become a stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that is a beginning, but not all, of `stop`."""
    for size in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0


class Detokenizer:
    """Decodes token bytes to text, up to the first stop string."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._characters = _decoder("replace")
        self._scanner = StopScanner(stops)

    @property
    def stopped(self) -> bool:
        """Whether a stop string was met; what came before it has been returned."""
        return self._scanner.found is not None

    def feed(self, data: bytes) -> str:
        """Return the text that can be shown once `data` has come."""
        text = self._characters.decode(data)
        return self._scanner.feed(text) if text else ""

    def flush(self) -> str:
        """Return what is left when nothing more comes; half a character shows as U+FFFD."""
        return self._scanner.feed(self._characters.decode(b"", final=True)) + self._scanner.flush()
