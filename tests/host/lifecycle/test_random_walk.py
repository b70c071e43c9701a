"""A thousand random operations on models that do not all fit: whatever happens, no byte, slot or waiter is lost."""

import asyncio
import collections
import random

import pytest
import walks

from host.errors import ColdframeError
from host.state import State

pytestmark = pytest.mark.anyio
MODELS = {
    "small": {"options": {"plan_bytes": 30}},
    "slow": {"options": {"plan_bytes": 50, "load_seconds": 0.02, "close_seconds": 0.01}, "idle": 0.05},
    "at-once": {"options": {"plan_bytes": 40}, "idle": 0},
    "one-slot": {"options": {"plan_bytes": 60}, "slots": 1, "queue": {"size": 3, "wait": 1}},
    "fails": {"options": {"plan_bytes": 20, "load_fails": "no"}},
    "plan-fails": {"options": {"plan_bytes": 20, "plan_fails": "no"}},
    "never-fits": {"options": {"plan_bytes": 101}},
    "retried": {"options": {"plan_bytes": 70, "load_oom": 1}},
}


def operations(house, dice, placement):
    name = dice.choice(list(MODELS))
    deployment = house.runtime.catalog.find(name)

    async def call(**options):
        await house.call(name, **options)

    async def leave():
        task = house.start(name, text="1 2 3", delay=0.01)
        await asyncio.sleep(dice.random() * 0.04)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def stream(ends):
        events = house.stream(name, text="1 2 3", delay=0.002)
        try:
            async for _ in events:
                if not ends:
                    break
        finally:
            await events.aclose()

    async def change():
        keys = MODELS[name]
        house.serve(name, placement=placement, **{**keys, "context": dice.randint(1, 1 << 20)})

    async def end(what):
        task = asyncio.ensure_future(what())
        await asyncio.sleep(dice.random() * 0.03)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    return dice.choices(
        [
            lambda: call(delay=dice.random() * 0.01),
            leave,
            lambda: stream(True),
            lambda: stream(False),
            lambda: call(error="bug"),
            deployment.load,
            deployment.unload,
            lambda: end(deployment.load),
            change,
            lambda: call(text="1 2", crash_after=dice.randint(0, 2), crash=dice.choice(["segv", "kill", 3])),
        ],
        [6, 3, 2, 2, 1, 1, 1, 1, 1, placement == "process"],
    )[0]


async def walk(house, placement, seed, steps, side_by_side):
    dice = random.Random(seed)
    gate = asyncio.Semaphore(side_by_side)
    budget = house.runtime.budget
    over = []

    async def step(operation):
        async with gate:
            try:
                await operation()
            except (ColdframeError, Exception) as error:
                if not isinstance(error, ColdframeError) and type(error).__name__ != "Superseded":
                    over.append(error)
            assert 0 <= budget.held() <= budget.totals["ram"]

    tasks = []
    for _ in range(steps):
        tasks.append(asyncio.ensure_future(step(operations(house, dice, placement))))
        if dice.random() < 0.5:
            await asyncio.sleep(dice.random() * 0.01)
    async with asyncio.timeout(300):
        await asyncio.gather(*tasks)
    assert over == []


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("seed", walks.seeds(1, 3, first=1))
@pytest.mark.parametrize(("placement", "steps"), [("inline", walks.size(300, 600)), ("process", walks.size(100, 200))])
async def test_nothing_is_lost(house, placement, seed, steps, impatient, monkeypatch):
    from host.lifecycle import cooldown, instance_startup

    monkeypatch.setattr(cooldown, "FIRST", 0.01)
    monkeypatch.setattr(instance_startup, "ABANDON_GRACE", 0.5)
    house = await house(budget={"ram": 100}, drain=2.0)
    for name, keys in MODELS.items():
        house.serve(name, placement=placement, **keys)
    for spawner in [house.runtime.registry.placements["process"]] if placement == "process" else []:
        spawner.warm(house.runtime.registry.engines["echo"])
    before = len(asyncio.all_tasks())
    await walk(house, placement, seed, steps, 8)
    deployments = list(house.runtime.catalog)
    for deployment in deployments:
        assert (deployment.in_flight, deployment.waiting, len(deployment._asked)) == (0, 0, 0), deployment.name
        assert not deployment._paused
        await deployment.unload()
    await house.until(lambda: all(d.state in (State.COLD, State.FAILED) for d in deployments))
    await house.until(lambda: not house.runtime.catalog._closing)
    assert house.runtime.budget.held() == 0
    assert house.runtime.budget._held == {}
    assert not house.runtime.dispatch._calls
    assert house.runtime.dispatch._empty.is_set()
    await house.until(lambda: len(asyncio.all_tasks()) <= before)
    for name in ("small", "slow", "one-slot", "retried"):
        assert (await house.call(name)).text == "x"
    counts = collections.Counter(type(event).__name__ for event in house.events)
    counts.update(event.reason for event in house.told("Evicted"))
    counts.update(event.outcome for event in house.told("CallEnded"))
    # It was no idle walk. How many there are of each depends on the machine: a tenth of what was seen on a busy one.
    assert counts["Loaded"] > steps / 50, counts
    assert min(counts[reason] for reason in ("memory", "ok", "cancelled", "load_failed")) > 0, counts
    assert counts["idle"] > 0 or placement == "process", counts
