"""What prefix caches need of a llama.cpp context: operations on the KV cache by sequence id; see `Context`."""

from __future__ import annotations

from typing import Any, Protocol


class SequenceMemory(Protocol):
    """The KV cache of a context, by sequence."""

    def first(self, sequence: int) -> int: ...  # noqa: D102
    def cut(self, sequence: int, length: int) -> bool: ...  # noqa: D102
    def forget(self, sequence: int) -> None: ...  # noqa: D102
    def copy(self, source: int, target: int, length: int, start: int = 0) -> None: ...  # noqa: D102


class SequenceStates(Protocol):
    """Copies of a sequence's state, out of a context and back into it."""

    def save(self, sequence: int) -> Any: ...  # noqa: D102
    def restore(self, sequence: int, state: Any) -> bool: ...  # noqa: D102
