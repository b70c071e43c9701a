"""The memory budget: reserves the bytes of plans in pools, and evicts idle instances until a plan fits.

A `Holder` is whatever holds memory; deployments are the only ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from host.errors import InsufficientMemory
from host.function import RAM, Plan

log = structlog.get_logger(__name__)
POLL = 0.1
"""Seconds between two looks at the memory that is really free."""
PATIENCE = 5.0
"""Seconds an admission waits for busy holders before they are asked to take no new work."""
ACCELERATOR_SHARE = 0.95
"""Of an accelerator's memory; the rest is the driver's."""


class Holder(Protocol):
    """Somebody who may hold memory."""

    name: str

    @property
    def evictable(self) -> bool:
        """Whether it holds memory and could go now: loaded, idle, nobody waiting, not pinned."""

    @property
    def last_used(self) -> float:
        """When its last call ended, on the monotonic clock."""

    async def evict(self, reason: str) -> bool:
        """Go, unless work came in; returns, once its memory is free, whether it went."""

    def pause(self, paused: bool) -> None:
        """Start no further call while `paused`: somebody has waited long for its memory. What runs goes on."""


class Budget:
    """The bytes that may be taken of each pool, and by whom they are."""

    def __init__(self, totals: Mapping[str, int], available: Callable[[], int] | None = None) -> None:
        self.totals = dict(totals)
        self._available = available
        # By holder, not by name: a manifest that changed is drained while its successor of the same name loads.
        self._held: dict[Holder, dict[str, int]] = {}
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    def held(self, pool: str = RAM) -> int:
        """Return the bytes of a pool that are given out."""
        return sum(bytes_.get(pool, 0) for bytes_ in self._held.values())

    def poke(self) -> None:
        """Have a waiting admission look again: something came up or went idle, or memory came back."""
        self._changed.set()

    def release(self, holder: Holder) -> None:
        """Take back what `holder` held; its memory is free by now."""
        if self._held.pop(holder, None) is not None:
            self.poke()

    async def admit(self, holder: Holder, plan: Plan) -> None:
        """Wait until the plan's bytes fit, evicting idle holders, least recently used first; then hold them.

        One admission at a time, in order, so that a large one is not starved by small ones; holders that are busy
        without a pause are made to take one, so that it is not starved by them either. Cancel it to give up.
        Raises `InsufficientMemory` for what could not fit if everybody else were gone.
        """
        for pool, total in plan.pools.items():
            self.totals.setdefault(pool, int(total * ACCELERATOR_SHARE))
        self._refuse_impossible(holder, plan)
        paused: set[Holder] = set()
        try:
            async with self._turn:
                await self._make_room(plan, paused)
                self._held[holder] = dict(plan.bytes)
        finally:
            for other in paused:
                other.pause(False)

    async def _make_room(self, plan: Plan, paused: set[Holder]) -> None:
        patient_until = time.monotonic() + PATIENCE
        while not self._fits(plan):
            self._changed.clear()
            victim = self._victim(plan)
            if victim is not None:
                await victim.evict("memory")  # or it found work in this moment: then the next one
                continue
            patience = patient_until - time.monotonic()
            if patience <= 0:
                for other in self._in_the_way(plan) - paused:
                    paused.add(other)
                    other.pause(True)
                if self._victim(plan) is not None:
                    continue
            await self._wait(patience if patience > 0 else None)

    def _refuse_impossible(self, holder: Holder, plan: Plan) -> None:
        for pool, need in plan.bytes.items():
            total = self.totals.get(pool)
            if total is not None and need > total:
                raise InsufficientMemory(
                    f"The model `{holder.name}` needs {mib(need)} MiB of {pool}, "
                    f"and the budget is {mib(total)} MiB in all.",
                    extra={"pool": pool, "bytes_needed": need, "bytes_budget": total},
                )

    def _fits(self, plan: Plan) -> bool:
        return not self._short(plan) and self._really_free(plan)

    def _short(self, plan: Plan) -> set[str]:
        """Return the pools whose budget the plan would exceed now."""
        return {
            pool
            for pool, need in plan.bytes.items()
            if pool in self.totals and self.held(pool) + need > self.totals[pool]
        }

    def _really_free(self, plan: Plan) -> bool:
        return self._available is None or self._available() >= plan.bytes.get(RAM, 0)

    def _victim(self, plan: Plan) -> Holder | None:
        idle = [holder for holder in self._in_the_way(plan) if holder.evictable]
        return min(idle, key=lambda holder: holder.last_used, default=None)

    def _in_the_way(self, plan: Plan) -> set[Holder]:
        short = self._short(plan) or {RAM}
        return {holder for holder, bytes_ in self._held.items() if any(bytes_.get(pool) for pool in short)}

    async def _wait(self, longest: float | None) -> None:
        """Wait for news of holders, at most `longest` seconds; when the machine may be short, only a moment."""
        if self._available is not None:
            longest = POLL if longest is None else min(POLL, longest)
        # Not `wait_for`: in Python 3.11 it forgets that it was cancelled when the news come in the same moment.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest):
                await self._changed.wait()


def mib(bytes_: int) -> int:
    """Return whole MiB, rounded up."""
    return -(-bytes_ // (1 << 20))
