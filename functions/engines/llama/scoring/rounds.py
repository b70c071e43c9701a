"""Rounds: as many nodes of a tree as are computed together, laid over sequences.

A sequence runs from the prefix to one tip; a node that several tips have in common belongs to all their sequences,
which stand next to each other. It knows nodes and counts, and nothing of contexts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from functions.engines.llama.scoring.tree import Node


class Step:
    """A node in a round, and the sequences it belongs to: from `low` up to, not including, `high`."""

    __slots__ = ("high", "low", "node")

    def __init__(self, node: Node, low: int) -> None:
        self.node = node
        self.low = low
        self.high = low + 1


class Round:
    """Steps in the order in which they are computed: parents before children."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.targets: list[Node] = []
        self.tips = 0
        """Sequences."""
        self._last: list[Step] = []

    def cost(self, path: Sequence[Node]) -> tuple[int, int]:
        """Return how many steps and sequences a path would add."""
        common = self._common(path)
        return len(path) - common, int(not self._last or common < len(self._last))

    def add(self, path: Sequence[Node]) -> None:
        """Add a path to a target; one that goes on where the last one ended stays in its sequence."""
        common = self._common(path)
        if not self._last or common < len(self._last):
            self.tips += 1
            for step in self._last[:common]:
                step.high = self.tips
        fresh = [Step(node, self.tips - 1) for node in path[common:]]
        self.steps += fresh
        self._last = [*self._last[:common], *fresh]
        self.targets.append(path[-1])

    def _common(self, path: Sequence[Node]) -> int:
        count = 0
        for step, node in zip(self._last, path, strict=False):
            if step.node is not node:
                break
            count += 1
        return count


def rounds(targets: Sequence[Node], *, steps: int, tips: int) -> Iterator[Round]:
    """Yield rounds over targets, in their order, of at most so many steps and sequences.

    A single path may have more steps than that.
    """
    current = Round()
    for target in targets:
        path = target.path()
        more, tip = current.cost(path)
        if current.steps and (len(current.steps) + more > steps or current.tips + tip > tips):
            yield current
            current = Round()
        current.add(path)
    if current.steps:
        yield current
