"""Computes scoring batches on a context: prefix from the cache or computed, then the tree's nodes, then their logits.

Nodes that the next batch needs as ancestors, such as a long question, stay cached after the prefix. All of it runs in
one thread. NaNs persist in reused KV cells, so the cache is cleared after them, and targets are retried in halves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from functions.engines.llama.model.context import ABORTED, COMPUTED
from functions.engines.llama.scoring.branch import Branch, Scores
from functions.engines.llama.scoring.context import SEQUENCES, ScoringContext
from functions.engines.llama.scoring.prefixes import ScoringPrefixes
from functions.engines.llama.scoring.tree import Node, Tree
from functions.engines.llama.scoring.tree_batches import TreeBatch, plan_batches
from functions.engines.prefix_cache.common_prefix import common_prefix
from host.errors import ColdframeError, OutOfMemory

PREFIXES = 8
"""Sequences for cached prefixes."""
LEAVES = SEQUENCES - PREFIXES
"""Sequences of one batch."""
_MAX_RETRIES = 64
"""Batches of a call spent on isolating targets whose logits are not finite."""
_MAX_FRUITLESS = 12
"""Consecutive retries without a finite result after which no more are tried. Bisecting a batch down to a single target
takes fewer."""
_OUT_OF_MEMORY = -2


class Aborted(Exception):
    """The computation was aborted."""


class ScoringTask:
    """One call to score, computed batch by batch."""

    def __init__(self, prefix: Sequence[int], branches: Sequence[Branch], *, steps: int, leaves: int) -> None:
        if not all(len(branch.suffix) for branch in branches):
            # Answers right after the prefix: its last token is computed with the batch, for its logits.
            prefix, last = prefix[:-1], list(prefix[-1:])
            branches = [Branch([*last, *branch.suffix], branch.answers) for branch in branches]
        self.prefix = list(prefix)
        self.tree = Tree(branches)
        self.cached: int | None = None
        self.prefill_debt = 0
        """Prefix tokens computed, less the tokens scored after them since."""
        self._leaves = leaves
        self._steps = steps
        self._batches = plan_batches(self.tree.targets(), steps=steps, leaves=leaves)
        self._next = next(self._batches, None)
        self._suspects: list[tuple[list[Node], list[Node]]] = []
        """(ancestors, targets) to retry."""
        self._retries = 0
        self._fruitless = 0

    def unfinished(self) -> bool:
        """Return whether a batch is left."""
        return self._next is not None or bool(
            self._suspects and self._retries < _MAX_RETRIES and self._fruitless < _MAX_FRUITLESS
        )

    def next(self) -> TreeBatch | None:
        """Return the next batch, None when all are done."""
        found = self._next
        if found is not None:
            self._next = next(self._batches, None)
        elif self.unfinished():
            self._retries += 1
            ancestors, targets = self._suspects.pop()
            # Part of an earlier batch fits into one batch.
            found = next(plan_batches(targets, steps=self._steps, leaves=self._leaves, ancestors=ancestors))
        return found

    def prefix_tokens(self, ancestors: Sequence[Node]) -> list[int]:
        """Return the token ids of the prefix and the ancestors."""
        return [*self.prefix, *(node.token for node in ancestors)]

    def next_ancestors(self) -> Sequence[Node]:
        """Return the ancestors of the next batch."""
        if self._next is not None:
            return self._next.ancestors
        return self._suspects[-1][0] if self.unfinished() else ()

    def length(self) -> int:
        """Return the number of tokens before the next batch: prefix and ancestors."""
        return len(self.prefix) + len(self.next_ancestors())

    def record(self, ancestors: list[Node], targets: list[Node]) -> None:
        """Record the targets of a batch without finite logits: each half of them is retried without the other.

        The first half goes first: descendants of an offending token need no retry.
        """
        self._fruitless = self._fruitless + 1 if targets and self._retries else 0
        if len(targets) > 1:
            middle = len(targets) // 2
            self._suspects += [(ancestors, targets[middle:]), (ancestors, targets[:middle])]
        elif targets and self._retries:
            rest = [
                (ancestors, [one for one in part if not one.descends_from(targets[0])])
                for ancestors, part in self._suspects
            ]
            self._suspects = [(ancestors, part) for ancestors, part in rest if part]

    def scores(self) -> Scores:
        """Return the scores found so far."""
        return Scores(
            logprobs=self.tree.logprobs(), cached=self.cached or 0, tokens=len(self.prefix) + self.tree.tokens
        )


class Scorer:
    """Computes the batches of scoring tasks."""

    def __init__(self, context: ScoringContext, *, budget: int, alone: bool) -> None:
        """`budget` is the number of tokens per batch; `alone` computes each sequence in full, sharing nothing."""
        self._context = context
        self._budget = budget
        self._alone = alone
        self._prefixes = ScoringPrefixes(context, count=PREFIXES, cells=context.cells)
        self._outputs: list[tuple[int, Node]] = []
        self._not_finite: list[Node] = []

    def task(self, prefix: Sequence[int], branches: Sequence[Branch]) -> ScoringTask:
        """Return the task of a call; takes time proportional to its tokens."""
        return ScoringTask(prefix, branches, steps=self._budget, leaves=1 if self._alone else LEAVES)

    def holds(self, prefixes: int) -> bool:
        """Return whether prefixes of so many tokens in all fit into the KV cache beside a batch."""
        return prefixes + self._budget <= self._context.cells

    def advance(self, task: ScoringTask, guard: Callable[[], None]) -> bool:
        """Compute the next batch; False if there is none left. `guard` is called before each computation.

        Raises `Aborted`, `OutOfMemory`, `ColdframeError`, and whatever `guard` raises.
        """
        batch_plan = task.next()
        if batch_plan is None:
            return False
        self._outputs, self._not_finite = [], []
        compute = self._in_full if self._alone else self._after_prefix
        compute(task, batch_plan, guard)
        if self._not_finite:
            # NaNs persist in reused KV cells.
            self._wipe()
        task.record(batch_plan.ancestors, self._not_finite)
        return True

    def _after_prefix(self, task: ScoringTask, batch_plan: TreeBatch, guard: Callable[[], None]) -> None:
        ids = task.prefix_tokens(batch_plan.ancestors)
        sequence, known = self._prefixes.acquire(ids, len(batch_plan.steps))
        leaves = range(PREFIXES, PREFIXES + batch_plan.leaves)
        for leaf in leaves:
            self._context.copy(sequence, leaf, known)
        try:
            self._run([sequence, *leaves], ids[known:], known, batch_plan, guard)
            self._prefixes.store(sequence, ids)
            self._keep_ancestors(task, batch_plan, sequence, leaves[-1])
        except BaseException:
            self._prefixes.drop(sequence)
            raise
        finally:
            for leaf in leaves:
                self._context.forget(leaf)
        task.prefill_debt = max(0, task.prefill_debt + len(ids) - known - len(batch_plan.steps))
        if task.cached is None:
            task.cached = known

    def _keep_ancestors(self, task: ScoringTask, batch_plan: TreeBatch, sequence: int, leaf: int) -> None:
        """Keep in the prefix's sequence the ancestors of the next batch, and no others."""
        ahead = task.next_ancestors()
        if batch_plan.ancestors or ahead:
            ahead = ahead[: common_prefix(batch_plan.path, ahead)]
            length = len(task.prefix) + common_prefix(batch_plan.ancestors, ahead)
            self._prefixes.extend(sequence, leaf, task.prefix_tokens(ahead), length)

    def _in_full(self, task: ScoringTask, batch_plan: TreeBatch, guard: Callable[[], None]) -> None:
        sequence = 0
        try:
            self._run([sequence, sequence], task.prefix_tokens(batch_plan.ancestors), 0, batch_plan, guard)
        finally:
            self._context.forget(sequence)

    def _run(
        self, line: Sequence[int], missing: Sequence[int], known: int, batch_plan: TreeBatch, guard: Callable[[], None]
    ) -> None:
        """Compute the missing prefix tokens for all sequences of `line`, then each step for its sequences."""
        context, batch = self._context, self._context.batch
        context.begin_shared(line)
        first, low = (0, 1 + batch_plan.leaves) if not self._alone else (1, 2)
        done = 0
        while done < len(missing):
            part = missing[done : done + batch.size - batch.count]
            batch.add(part, known + done, first, low)
            done += len(part)
            if batch.count == batch.size:
                self._compute(guard)
        after = known + len(missing) - len(batch_plan.ancestors)
        targets = {id(node) for node in batch_plan.targets}
        for step in batch_plan.steps:
            needs_logits = id(step.node) in targets
            if batch.count == batch.size or (needs_logits and len(self._outputs) == SEQUENCES):
                self._compute(guard)
            position = after + step.node.depth - 1
            index = batch.add((step.node.token,), position, 1 + step.low, 1 + step.high, output=needs_logits)
            if needs_logits:
                self._outputs.append((index, step.node))
        if batch.count:
            self._compute(guard)

    def _compute(self, guard: Callable[[], None]) -> None:
        guard()
        outcome = self._context.compute_shared()
        if outcome == COMPUTED:
            for index, node in self._outputs:
                node.found = log_probabilities(self._context.logits(index), list(node.wanted))
                if node.found is None:
                    self._not_finite.append(node)
            self._outputs = []
            return
        if outcome == ABORTED:
            raise Aborted
        self._wipe()
        if outcome == _OUT_OF_MEMORY:
            raise OutOfMemory("memory ran out while a batch was computed")
        raise ColdframeError(f"llama.cpp could not compute a batch (code {outcome})")

    def _wipe(self) -> None:
        self._context.wipe()
        self._prefixes.clear()


def log_probabilities(row: NDArray[np.float32], tokens: Sequence[int]) -> NDArray[np.float64] | None:
    """Return the log-softmax of a row at some tokens; None if the row has NaN or infinity. Overwrites the row."""
    top = row.max()
    if not np.isfinite(top):
        return None
    picked = row[list(tokens)].astype(np.float64)
    np.subtract(row, top, out=row)
    np.exp(row, out=row)
    found: NDArray[np.float64] = picked - float(top) - np.log(row.sum(dtype=np.float64))
    return found
