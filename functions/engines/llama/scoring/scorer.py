"""Rounds on a context: the prefix is found or computed, a round's tokens behind it, and probabilities read off.

What one round computes and the next one begins with, such as a question too long for a single round, is kept behind the
prefix until then.

It knows contexts, trees and trunks, and nothing of who asks. All of it runs in one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from functions.engines.llama.model.context import ABORTED, COMPUTED
from functions.engines.llama.scoring.batches import TreeBatch, rounds
from functions.engines.llama.scoring.branch import Branch, Scores
from functions.engines.llama.scoring.context import SEQUENCES, ScoringContext
from functions.engines.llama.scoring.prefixes import ScoringPrefixes
from functions.engines.llama.scoring.tree import Node, Tree
from functions.engines.prefix_cache.common_prefix import common_prefix
from host.errors import ColdframeError, OutOfMemory

PREFIXES = 8
"""Prefixes kept."""
TIPS = SEQUENCES - PREFIXES
"""Sequences of one round."""
_RETRIES = 64
"""Rounds of a call spent on finding out which targets give no numbers and which only shared a batch with such."""
_VAIN = 12
"""Rounds among these, one after another, that gave none: then it is all the same everywhere. Halving a round until a
single target is left takes fewer."""
_OUT_OF_MEMORY = -2


class Aborted(Exception):
    """The computation was told to stop."""


class Work:
    """One call, advanced by a round at a time."""

    def __init__(self, prefix: Sequence[int], branches: Sequence[Branch], *, steps: int, tips: int) -> None:
        if not all(len(branch.suffix) for branch in branches):
            # Probabilities behind the prefix itself: its last token is computed with the round.
            prefix, last = prefix[:-1], list(prefix[-1:])
            branches = [Branch([*last, *branch.suffix], branch.answers) for branch in branches]
        self.prefix = list(prefix)
        self.tree = Tree(branches)
        self.cached: int | None = None
        self.owed = 0
        """Tokens of the prefix and of leads that were computed for rounds to come, less the tokens behind it since."""
        self._tips = tips
        self._steps = steps
        self._rounds = rounds(self.tree.targets(), steps=steps, tips=tips)
        self._ahead = next(self._rounds, None)
        self._doubtful: list[tuple[list[Node], list[Node]]] = []
        """Leads, and targets behind them."""
        self._retries = 0
        self._vain = 0

    def unfinished(self) -> bool:
        """Say whether a round is left."""
        return self._ahead is not None or bool(self._doubtful and self._retries < _RETRIES and self._vain < _VAIN)

    def next(self) -> TreeBatch | None:
        """Return the round to compute next, None when all is done."""
        found = self._ahead
        if found is not None:
            self._ahead = next(self._rounds, None)
        elif self.unfinished():
            self._retries += 1
            lead, targets = self._doubtful.pop()
            # A part of what was one round before fits into one.
            found = next(rounds(targets, steps=self._steps, tips=self._tips, lead=lead))
        return found

    def trunk(self, lead: Sequence[Node]) -> list[int]:
        """Return the ids of the prefix and a lead."""
        return [*self.prefix, *(node.token for node in lead)]

    def ahead(self) -> Sequence[Node]:
        """Return the lead of the next round."""
        if self._ahead is not None:
            return self._ahead.lead
        return self._doubtful[-1][0] if self.unfinished() else ()

    def length(self) -> int:
        """Return how many tokens the next round is behind."""
        return len(self.prefix) + len(self.ahead())

    def learn(self, lead: list[Node], targets: list[Node]) -> None:
        """Take note of which targets of a round gave no numbers: each half of them is tried without the other.

        The first half is tried first: what stands behind a token that is to blame needs no trial of its own.
        """
        self._vain = self._vain + 1 if targets and self._retries else 0
        if len(targets) > 1:
            middle = len(targets) // 2
            self._doubtful += [(lead, targets[middle:]), (lead, targets[:middle])]
        elif targets and self._retries:
            rest = [(lead, [one for one in part if not one.behind(targets[0])]) for lead, part in self._doubtful]
            self._doubtful = [(lead, part) for lead, part in rest if part]

    def scores(self) -> Scores:
        """Return what was found."""
        return Scores(logs=self.tree.logs(), cached=self.cached or 0, tokens=len(self.prefix) + self.tree.tokens)


class Scorer:
    """Computes rounds of any work."""

    def __init__(self, context: ScoringContext, *, budget: int, alone: bool) -> None:
        """`budget` are the tokens of a round; `alone` computes each sequence in full, and shares nothing."""
        self._context = context
        self._budget = budget
        self._alone = alone
        self._prefixes = ScoringPrefixes(context, count=PREFIXES, cells=context.cells)
        self._reading: list[tuple[int, Node]] = []
        self._bad: list[Node] = []

    def work(self, prefix: Sequence[int], branches: Sequence[Branch]) -> Work:
        """Return the work of a call; it takes a while where there are many tokens."""
        return Work(prefix, branches, steps=self._budget, tips=1 if self._alone else TIPS)

    def holds(self, prefixes: int) -> bool:
        """Say whether prefixes of so many tokens in all stay in memory beside a round."""
        return prefixes + self._budget <= self._context.cells

    def advance(self, work: Work, guard: Callable[[], None]) -> bool:
        """Compute the next round; False when there is none left. `guard` is called before each computation.

        Raises `Aborted`, `OutOfMemory`, `ColdframeError`, and whatever `guard` raises.
        """
        todo = work.next()
        if todo is None:
            return False
        self._reading, self._bad = [], []
        compute = self._by_itself if self._alone else self._behind_trunk
        compute(work, todo, guard)
        if self._bad:
            # What is no number is felt by everything in the same cells, even when they are free again.
            self._wipe()
        work.learn(todo.lead, self._bad)
        return True

    def _behind_trunk(self, work: Work, todo: TreeBatch, guard: Callable[[], None]) -> None:
        ids = work.trunk(todo.lead)
        trunk, known = self._prefixes.acquire(ids, len(todo.steps))
        tips = range(PREFIXES, PREFIXES + todo.tips)
        for tip in tips:
            self._context.copy(trunk, tip, known)
        try:
            self._run([trunk, *tips], ids[known:], known, todo, guard)
            self._prefixes.store(trunk, ids)
            self._keep(work, todo, trunk, tips[-1])
        except BaseException:
            self._prefixes.drop(trunk)
            raise
        finally:
            for tip in tips:
                self._context.forget(tip)
        work.owed = max(0, work.owed + len(ids) - known - len(todo.steps))
        if work.cached is None:
            work.cached = known

    def _keep(self, work: Work, todo: TreeBatch, trunk: int, tip: int) -> None:
        """Leave behind the prefix what the next round begins with, and nothing else of leads."""
        ahead = work.ahead()
        if todo.lead or ahead:
            ahead = ahead[: common_prefix(todo.path, ahead)]
            length = len(work.prefix) + common_prefix(todo.lead, ahead)
            self._prefixes.extend(trunk, tip, work.trunk(ahead), length)

    def _by_itself(self, work: Work, todo: TreeBatch, guard: Callable[[], None]) -> None:
        sequence = 0
        try:
            self._run([sequence, sequence], work.trunk(todo.lead), 0, todo, guard)
        finally:
            self._context.forget(sequence)

    def _run(
        self, line: Sequence[int], missing: Sequence[int], known: int, todo: TreeBatch, guard: Callable[[], None]
    ) -> None:
        """Compute what is missing of prefix and lead for all sequences of the line, and the steps for those behind."""
        context, batch = self._context, self._context.batch
        context.begin_shared(line)
        first, low = (0, 1 + todo.tips) if not self._alone else (1, 2)
        done = 0
        while done < len(missing):
            part = missing[done : done + batch.size - batch.count]
            batch.add(part, known + done, first, low)
            done += len(part)
            if batch.count == batch.size:
                self._compute(guard)
        after = known + len(missing) - len(todo.lead)
        targets = {id(node) for node in todo.targets}
        for step in todo.steps:
            wants = id(step.node) in targets
            if batch.count == batch.size or (wants and len(self._reading) == SEQUENCES):
                self._compute(guard)
            position = after + step.node.depth - 1
            index = batch.add((step.node.token,), position, 1 + step.low, 1 + step.high, output=wants)
            if wants:
                self._reading.append((index, step.node))
        if batch.count:
            self._compute(guard)

    def _compute(self, guard: Callable[[], None]) -> None:
        guard()
        outcome = self._context.compute_shared()
        if outcome == COMPUTED:
            for index, node in self._reading:
                node.found = logs(self._context.logits(index), list(node.wanted))
                if node.found is None:
                    self._bad.append(node)
            self._reading = []
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


def logs(row: NDArray[np.float32], tokens: Sequence[int]) -> NDArray[np.float64] | None:
    """Return the log-probabilities of some tokens; None where the row holds what is no number. Overwrites the row."""
    top = row.max()
    if not np.isfinite(top):
        return None
    picked = row[list(tokens)].astype(np.float64)
    np.subtract(row, top, out=row)
    np.exp(row, out=row)
    found: NDArray[np.float64] = picked - float(top) - np.log(row.sum(dtype=np.float64))
    return found
