"""Rounds: as many nodes of a tree as are computed together, laid over sequences.

What a round begins with is its ancestors: nodes that a round before it has computed, and that all of its targets are behind.
They are kept, and not computed again. Behind the ancestors a sequence runs to one leaf; a node that several leaves have in
common belongs to all their sequences, which stand next to each other. It knows nodes and counts, and nothing of
contexts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from functions.engines.llama.scoring.tree import Node
from functions.engines.prefix_cache.common_prefix import common_prefix

_AGAIN = 4
"""One in so many steps of a full round may be of a ancestors that was given up, so that other targets have a place too."""


class Step:
    """A node in a round, and the sequences it belongs to: from `low` up to, not including, `high`."""

    __slots__ = ("high", "low", "node")

    def __init__(self, node: Node, low: int, high: int) -> None:
        self.node = node
        self.low = low
        self.high = high


class TreeBatch:
    """Steps in the order in which they are computed: parents before children."""

    def __init__(self, ancestors: Sequence[Node] = ()) -> None:
        self.ancestors = list(ancestors)
        """The nodes from the one behind the root to the one that the steps are behind."""
        self.path = self.ancestors
        """Those to the last target: the ancestors, and what belongs to the last sequence."""
        self.steps: list[Step] = []
        self.targets: list[Node] = []
        self.leaves = 0
        """Sequences."""
        self._last: list[Step] = []
        """The steps of the last sequence."""
        self._again = 0

    def takes(self, path: Sequence[Node], *, steps: int, leaves: int) -> bool:
        """Say whether a path, added, leaves the round with so many steps and sequences at most."""
        shared = common_prefix(self.path, path)
        again = max(0, len(self.ancestors) - shared)
        fork = shared < len(self.path)
        return (
            len(self.steps) + again + len(path) - shared <= steps
            and self.leaves + fork <= leaves
            and (not again or self._again + again <= steps // _AGAIN)
        )

    def add(self, path: list[Node]) -> None:
        """Add a path to a target; one that goes on where the last one ended stays in its sequence."""
        shared = common_prefix(self.path, path)
        self._give_up(shared)
        if not self.leaves or shared < len(self.path):
            self.leaves += 1
        kept = self._last[: shared - len(self.ancestors)]
        for step in kept:
            step.high = self.leaves
        fresh = [Step(node, self.leaves - 1, self.leaves) for node in path[shared:]]
        self.steps += fresh
        self._last = [*kept, *fresh]
        self.path = path
        self.targets.append(path[-1])

    def _give_up(self, length: int) -> None:
        """Let the ancestors end earlier: what it loses is computed with the round, for all sequences."""
        lost = [Step(node, 0, self.leaves) for node in self.ancestors[length:]]
        self.ancestors = self.ancestors[:length]
        self.steps = [*lost, *self.steps]
        self._again += len(lost)


def plan_batches(
    targets: Sequence[Node], *, steps: int, leaves: int, ancestors: Sequence[Node] = ()
) -> Iterator[TreeBatch]:
    """Yield rounds over targets, in their order, of at most so many steps and sequences.

    A single path may have more steps than that. All targets are behind `ancestors`, the first round's.
    """
    current = TreeBatch(ancestors)
    for target in targets:
        path = target.path()
        if current.steps and not current.takes(path, steps=steps, leaves=leaves):
            yield current
            current = TreeBatch(path[: common_prefix(current.path, path)])
        current.add(path)
    if current.steps:
        yield current
