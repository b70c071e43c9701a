"""A tree of tokens: branches that begin alike share their nodes, and every node is computed once.

What a branch's answers need is known from the start: the next token's probability at the end of the suffix, and behind
each token of an answer but its last. It knows ids and counts, and nothing of contexts or models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from functions.engines.llama.scoring.branch import Branch


class Node:
    """A token behind those of its parents, and the tokens whose probabilities are wanted behind it."""

    __slots__ = ("children", "depth", "found", "parent", "token", "wanted")

    def __init__(self, token: int, parent: Node | None, depth: int) -> None:
        self.token = token
        self.parent = parent
        self.depth = depth
        """Tokens from the prefix to this one, itself included; 0 is the root, which stands for the prefix."""
        self.children: dict[int, Node] = {}
        self.wanted: dict[int, int] = {}
        """Token -> its place in `found`."""
        self.found: NDArray[np.float64] | None = None

    def path(self) -> list[Node]:
        """Return the nodes from the one behind the root to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.depth:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def descends_from(self, other: Node) -> bool:
        """Say whether the other node is on the way to this one."""
        node: Node | None = self
        while node is not None and node.depth > other.depth:
            node = node.parent
        return node is other


class Tree:
    """The nodes of some branches, whose suffixes have at least one token each."""

    def __init__(self, branches: Sequence[Branch]) -> None:
        self._root = Node(-1, None, 0)
        self.tokens = 0
        """Tokens of all suffixes, those that they have in common counted once."""
        ends = [self._end(branch.suffix) for branch in branches]
        self._answers = [
            [list(_grown(end, answer)) for answer in branch.answers] for branch, end in zip(branches, ends, strict=True)
        ]

    def targets(self) -> list[Node]:
        """Return the nodes behind which probabilities are wanted; parents first, kin next to each other."""
        found: list[Node] = []
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.wanted:
                found.append(node)
            stack.extend(reversed(node.children.values()))
        return found

    def logprobs(self) -> list[NDArray[np.float64]]:
        """Return the log-probability of each branch's answers, once all targets are found or given up."""
        return [np.array([sum(map(_log, answer)) for answer in answers]) for answers in self._answers]

    def _end(self, suffix: Sequence[int]) -> Node:
        """Return the last node of a suffix, with what was missing up to it."""
        node = self._root
        for token in suffix:
            self.tokens += token not in node.children
            node = _child(node, token)
        return node


def _grown(node: Node, answer: Sequence[int]) -> Iterator[tuple[Node, int]]:
    """Grow what is missing of an answer's nodes, and yield its tokens, each with the node it follows."""
    for at, token in enumerate(answer):
        node = _child(node, answer[at - 1]) if at else node
        node.wanted.setdefault(token, len(node.wanted))
        yield node, token


def _child(node: Node, token: int) -> Node:
    found = node.children.get(token)
    if found is None:
        found = node.children[token] = Node(token, node, node.depth + 1)
    return found


def _log(step: tuple[Node, int]) -> float:
    node, token = step
    return float("nan") if node.found is None else float(node.found[node.wanted[token]])
