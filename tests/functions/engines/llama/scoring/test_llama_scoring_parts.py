"""Scoring without a model: token trees, their batches, the prefix cache, and plans."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import loads
import msgspec
import numpy as np
import pytest
import walks
from ggufs import llamas

from functions.engines.llama.memory.plan import PROCESS
from functions.engines.llama.scoring import plan as planning
from functions.engines.llama.scoring.branch import Branch
from functions.engines.llama.scoring.prefixes import ScoringPrefixes
from functions.engines.llama.scoring.scorer import log_probabilities
from functions.engines.llama.scoring.tree import Tree
from functions.engines.llama.scoring.tree_batches import plan_batches

MIB = 1 << 20
FILL = """
import sys, msgspec
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from functions.engines.llama.scoring.context import SEQUENCES, ScoringContext
path, options, cells = sys.argv[1], msgspec.json.decode(sys.argv[2], type=LlamaOptions), int(sys.argv[3])
def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) << 10
before = anonymous()
model = Model.open(path, options, Target())
made = ScoringContext.make(model, options, Target(), cells=cells, threads=1)
size = made.batch.size
for start in range(0, min(cells - size, size) + 1, size):
    made.begin_shared([0])
    for at in range(size):
        made.batch.add([5], start + at, 0, 1, output=at >= size - SEQUENCES)
    assert made.compute_shared() == 0
print(anonymous() - before)
"""


def drawn(dice: random.Random) -> list[Branch]:
    def some(least: int, most: int) -> list[int]:
        return [dice.randrange(3) for _ in range(dice.randrange(least, most))]

    return [Branch(some(1, 6), [some(1, 4) for _ in range(dice.randrange(1, 5))]) for _ in range(dice.randrange(1, 30))]


@pytest.mark.soak
@pytest.mark.parametrize("seed", walks.seeds(20, 300))
@pytest.mark.parametrize(("steps", "leaves"), [(1, 1), (7, 3), (1000, 56), (1000, 1)])
def test_batches_compute_every_target_after_its_ancestors(seed: int, steps: int, leaves: int) -> None:
    tree = Tree(drawn(random.Random(seed)))
    targets = tree.targets()
    seen = []
    for batch_plan in plan_batches(targets, steps=steps, leaves=leaves):
        assert batch_plan.leaves <= leaves
        assert len(batch_plan.steps) <= steps or len(batch_plan.targets) == 1
        # Each sequence is the tokens of the steps that belong to it, in the order of computation.
        paths = [
            [step.node for step in batch_plan.steps if step.low <= leaf < step.high]
            for leaf in range(batch_plan.leaves)
        ]
        for path in paths:
            assert [node.depth for node in path] == list(
                range(len(batch_plan.ancestors) + 1, len(batch_plan.ancestors) + len(path) + 1)
            )
            assert all(node.parent is before for before, node in itertools.pairwise([*batch_plan.ancestors, *path]))
        for target in batch_plan.targets:
            assert any(target in path for path in paths)
        assert len({id(step.node) for step in batch_plan.steps}) == len(batch_plan.steps)
        seen += batch_plan.targets
    assert [id(node) for node in seen] == [id(node) for node in targets]


@pytest.mark.soak
@pytest.mark.parametrize("seed", walks.seeds(8, 100))
@pytest.mark.parametrize("stem", [1, 30, 90, 101, 250, 1000])
@pytest.mark.parametrize("leaves", [3, 56])
def test_batches_compute_few_nodes_twice(seed: int, stem: int, leaves: int) -> None:
    dice = random.Random(seed)
    branches = [
        Branch(
            [at, *(dice.randrange(9) for _ in range(dice.randrange(stem) + 1))],
            [[dice.randrange(9) for _ in range(dice.randrange(1, 7))] for _ in range(dice.randrange(1, 200))],
        )
        for at in range(5)
    ]
    found, kept = list(plan_batches(Tree(branches).targets(), steps=100, leaves=leaves)), set[int]()
    for batch_plan in found:
        assert kept.issuperset(map(id, batch_plan.ancestors))
        kept.update(id(step.node) for step in batch_plan.steps)
    total = sum(len(batch_plan.steps) for batch_plan in found)
    assert total <= len(kept) + 25 * len(found)
    assert len(found) <= 2 + len(kept) / (50 if leaves == 56 else 3)


def test_branches_share_the_nodes_of_a_common_beginning() -> None:
    tree = Tree([Branch([1, 2, 3], [[7, 8], [7, 9]]), Branch([1, 2, 4], [[5]]), Branch([1, 2], [[3, 6]])])
    assert tree.tokens == 4
    found = [([node.token for node in one.path()], list(one.wanted)) for one in tree.targets()]
    assert found == [([1, 2], [3]), ([1, 2, 3], [7, 6]), ([1, 2, 3, 7], [8, 9]), ([1, 2, 4], [5])]
    for at, node in enumerate(tree.targets()):
        node.found = np.full(len(node.wanted), -1.0 - at)
    assert [one.tolist() for one in tree.logprobs()] == [[-5.0, -5.0], [-4.0], [-3.0]]
    tree.targets()[2].found = None
    assert np.isnan(tree.logprobs()[0]).all() and not np.isnan(tree.logprobs()[1]).any()


def test_a_node_descends_from_its_ancestors_only() -> None:
    one, two, three, four = Tree([Branch([1, 2], [[3, 7, 8]]), Branch([4], [[5]])]).targets()
    assert two.descends_from(one) and three.descends_from(one) and one.descends_from(one)
    assert not one.descends_from(two) and not four.descends_from(one)


def test_log_softmax_of_a_row() -> None:
    row = np.array([1.0, 3.0, -np.inf, 500.0], np.float32)
    wanted = row.astype(np.float64) - np.logaddexp.reduce(row.astype(np.float64))
    found = log_probabilities(row.copy(), [0, 1, 2, 3])
    assert found is not None
    assert found == pytest.approx(wanted, abs=1e-6)
    for wrong in (np.nan, np.inf):
        row[1] = wrong
        assert log_probabilities(row.copy(), [0]) is None


class Cells:
    """A memory that knows how many tokens each sequence has, and refuses nonsense."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}

    def copy(self, source: int, target: int, length: int, start: int = 0) -> None:
        assert self.held.get(target, 0) == start < length <= self.held[source]
        self.held[target] = length

    def cut(self, sequence: int, length: int) -> bool:
        self.held[sequence] = min(length, self.held.get(sequence, 0))
        return True

    def forget(self, sequence: int) -> None:
        self.held.pop(sequence, None)


@pytest.mark.soak
@pytest.mark.parametrize("seed", walks.seeds(15, 300))
@pytest.mark.parametrize("count", [1, 2, 8])
def test_cached_prefixes_never_exceed_the_cells(seed: int, count: int) -> None:
    dice, memory = random.Random(seed), Cells()
    prefixes = ScoringPrefixes(memory, count=count, cells=60)
    for _ in range(200):
        prefix = [dice.randrange(2) for _ in range(dice.randrange(1, 40))]
        more = dice.randrange(1, 20)
        sequence, known = prefixes.acquire(prefix, more)
        assert known <= len(prefix)
        assert memory.held.get(sequence, 0) >= known
        memory.held[sequence] = max(memory.held.get(sequence, 0), len(prefix))
        assert sum(memory.held.values()) + more <= 60
        if dice.random() < 0.1:
            prefixes.drop(sequence)
        else:
            prefixes.store(sequence, prefix)
            assert prefixes.acquire(prefix, more) == (sequence, len(prefix))
        if dice.random() < 0.02:
            memory.held.clear()
            prefixes.clear()


@pytest.fixture
def plan_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def made(path: Path, options: dict[str, Any] | None = None, **manifest: Any) -> Any:
        return planning.make(loads.given("chat", path, options, engine="llama", device="cpu", **manifest))

    return made


def test_a_plan_reports_what_was_chosen(plan_of: Any, tmp_path: Path) -> None:
    path = llamas.write(tmp_path / "m.gguf", *llamas.llama())
    found = plan_of(path)
    assert found.context == 4096
    assert plan_of(path, context=512).bytes["ram"] < found.bytes["ram"]
    assert any("more than the 4096" in note for note in plan_of(path, context=5000).notes)
    assert any("slots has no meaning" in note for note in plan_of(path, slots=2).notes)
    again = plan_of(path, attempt=1)
    assert again.context == 2048 and any("instead of the trained" in note for note in again.notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "context"), [({}, 1536), ({"batch": 128, "ubatch": 128}, 896), ({"flash_attention": "off"}, 512)]
)
def test_a_plan_reports_the_memory_that_is_used(smollm2: Path, plan_of: Any, options: Any, context: int) -> None:
    options = options | {"mmap": False}
    plan = plan_of(smollm2, options, context=context)
    cells = context + options.get("batch", 512)
    arguments = [sys.executable, "-c", FILL, str(smollm2), msgspec.json.encode(options).decode(), str(cells)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    taken, planned = int(done.stdout), plan.bytes["ram"] - PROCESS
    assert planned * 0.9 < taken < planned * 1.03 + PROCESS, f"{taken / MIB:.0f} of {planned / MIB:.0f} MiB"
