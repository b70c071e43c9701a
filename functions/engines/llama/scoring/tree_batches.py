"""Splits the nodes of a token tree into batches, and assigns them to sequences.

The ancestors of a batch are nodes that all of its targets descend from and an earlier batch has computed; they stay in
the KV cache. After them each sequence runs to one leaf. A node shared by several leaves belongs to all their sequences,
which are adjacent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from functions.engines.llama.scoring.tree import Node
from functions.engines.prefix_cache.common_prefix import common_prefix

_RECOMPUTE_SHARE = 4
"""At most a quarter of a batch's steps recompute ancestors that targets do not share."""


class Step:
    """A node in a batch, and the sequences it belongs to: from `low` up to, not including, `high`."""

    __slots__ = ("high", "low", "node")

    def __init__(self, node: Node, low: int, high: int) -> None:
        self.node = node
        self.low = low
        self.high = high


class TreeBatch:
    """Steps in the order in which they are computed: parents before children."""

    def __init__(self, ancestors: Sequence[Node] = ()) -> None:
        self.ancestors = list(ancestors)
        """The path from below the root to the node that all steps descend from."""
        self.path = self.ancestors
        """The path to the last target: the ancestors and the nodes of the last sequence."""
        self.steps: list[Step] = []
        self.targets: list[Node] = []
        self.leaves = 0
        """Number of sequences."""
        self._last: list[Step] = []
        """The steps of the last sequence."""
        self._recomputed = 0

    def takes(self, path: Sequence[Node], *, steps: int, leaves: int) -> bool:
        """Return whether a path can be added within the given numbers of steps and sequences."""
        shared = common_prefix(self.path, path)
        recomputed = max(0, len(self.ancestors) - shared)
        fork = shared < len(self.path)
        return (
            len(self.steps) + recomputed + len(path) - shared <= steps
            and self.leaves + fork <= leaves
            and (not recomputed or self._recomputed + recomputed <= steps // _RECOMPUTE_SHARE)
        )

    def add(self, path: list[Node]) -> None:
        """Add the path to a target; one that continues the last path stays in its sequence."""
        shared = common_prefix(self.path, path)
        self._shorten_ancestors(shared)
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

    def _shorten_ancestors(self, length: int) -> None:
        """Shorten the ancestors to `length` nodes; the others are computed again, for all sequences."""
        lost = [Step(node, 0, self.leaves) for node in self.ancestors[length:]]
        self.ancestors = self.ancestors[:length]
        self.steps = [*lost, *self.steps]
        self._recomputed += len(lost)


def plan_batches(
    targets: Sequence[Node], *, steps: int, leaves: int, ancestors: Sequence[Node] = ()
) -> Iterator[TreeBatch]:
    """Yield batches over targets, in their order, of at most `steps` nodes and `leaves` sequences.

    A single path may have more steps. All targets descend from `ancestors`, which are those of the first batch.
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
