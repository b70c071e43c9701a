"""A tree of tokens: branches with a common beginning share nodes, so that every node is computed once.

Targets are the nodes after which log-probabilities are needed: the end of each suffix, and each token of an answer but
its last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from functions.engines.llama.scoring.branch import Branch


class Node:
    """A token after those of its ancestors, and the tokens whose log-probabilities after it are needed."""

    __slots__ = ("children", "depth", "found", "parent", "token", "wanted")

    def __init__(self, token: int, parent: Node | None, depth: int) -> None:
        self.token = token
        self.parent = parent
        self.depth = depth
        """Tokens from the prefix to this one, itself included; 0 is the root, which stands for the prefix."""
        self.children: dict[int, Node] = {}
        self.wanted: dict[int, int] = {}
        """Token -> its index in `found`."""
        self.found: NDArray[np.float64] | None = None

    def path(self) -> list[Node]:
        """Return the nodes from below the root to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.depth:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def descends_from(self, other: Node) -> bool:
        """Return whether the other node is this one or an ancestor of it."""
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
            [list(_answer_steps(end, answer)) for answer in branch.answers]
            for branch, end in zip(branches, ends, strict=True)
        ]

    def targets(self) -> list[Node]:
        """Return the nodes after which log-probabilities are needed, in depth-first order."""
        found: list[Node] = []
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.wanted:
                found.append(node)
            stack.extend(reversed(node.children.values()))
        return found

    def logprobs(self) -> list[NDArray[np.float64]]:
        """Return the log-probability of each branch's answers, NaN for targets without finite logits."""
        return [np.array([sum(map(_log, answer)) for answer in answers]) for answers in self._answers]

    def _end(self, suffix: Sequence[int]) -> Node:
        """Return the last node of a suffix; missing nodes are added."""
        node = self._root
        for token in suffix:
            self.tokens += token not in node.children
            node = _child(node, token)
        return node


def _answer_steps(node: Node, answer: Sequence[int]) -> Iterator[tuple[Node, int]]:
    """Add the nodes of an answer, and yield its tokens, each with the node it follows."""
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
