"""The instance: a text file is the weights, saying it back is the work, and every fault is one the caller asked for.

It runs in a worker and knows the contract and its own Structs, and nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import mmap
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, Self

from coldframe_echo.api import Call, Echo, EchoAnswer, EchoEvent, End, Report, Token
from coldframe_echo.faults import die, error, hoard, ignore_sigterm, touch
from coldframe_echo.options import EchoOptions
from host.errors import LoadFailed, OutOfMemory
from host.function import RAM, Instance, InstanceInfo, Load, Plan, Progress, Usage

_SLOTS = 4
_STEP = 0.02
_PACE = 64
_WORD = re.compile(r"\s*\S+")


class EchoInstance(Instance):
    """Says back what it hears; see `EchoOptions` for what a manifest can break, and `Call` for what a request can."""

    def __init__(self, load: Load, plan: Plan, options: EchoOptions, text: str, memory: mmap.mmap | None) -> None:
        self._plan = plan
        self._options = options
        self._text = text
        self._memory = memory
        self._counts = dict.fromkeys(("started", "finished", "cancelled", "failed", "running", "peak"), 0)
        self._attempt = load.attempt

    @classmethod
    def plan(cls, load: Load) -> Plan:
        """Tell the file's size and the hoard, or whatever number the options want told. Raises `LoadFailed`."""
        options = _options(load)
        time.sleep(options.plan_seconds)
        if options.plan_crash is not None:
            die(options.plan_crash)
        if options.plan_fails is not None:
            raise LoadFailed(options.plan_fails)
        device = "cpu" if load.manifest.device == "auto" else load.manifest.device
        pool = RAM if device == "cpu" else device
        if pool != RAM and options.vram_bytes is None:
            raise LoadFailed(f"There is no device {device!r} here; the option `vram_bytes` pretends that there is.")
        size = (
            options.hoard_bytes + Path(load.path).stat().st_size if options.plan_bytes is None else options.plan_bytes
        )
        wanted = load.manifest.slots
        slots = max(1, _SLOTS >> load.attempt) if wanted == "auto" else wanted
        return Plan(
            bytes={pool: size},
            device=device,
            slots=slots,
            context=4096 if load.manifest.context == "auto" else load.manifest.context,
            notes=(f"{slots} slots, because " + ("nothing else was asked" if wanted == "auto" else "of the manifest"),),
            detail={"weights": size},
            pools={} if pool == RAM or options.vram_bytes is None else {pool: options.vram_bytes},
        )

    @classmethod
    def load(cls, load: Load, plan: Plan, progress: Progress) -> Self:
        """Read the file, take the hoard, and break as the options say. Raises `OutOfMemory` and `LoadFailed`."""
        options = _options(load)
        if options.deaf:
            ignore_sigterm()
        try:
            text = Path(load.path).read_text(encoding="utf-8").strip()
            memory = hoard(options.hoard_bytes)
        except (OSError, UnicodeDecodeError) as problem:
            raise LoadFailed(f"The echo model is no readable text file: {problem}") from None
        print(f"echo read {load.path}", file=sys.stderr)
        total = max(options.hoard_bytes, len(text))
        for done, more in _steps(total, options.load_seconds):
            if memory is not None:
                touch(memory, done, more)
            progress("weights", more, total)
        if load.attempt < options.load_oom or options.load_fails is not None:
            if memory is not None:
                memory.close()
            if load.attempt < options.load_oom:
                raise OutOfMemory(f"Attempt {load.attempt} ran out of memory, as the option `load_oom` wants.")
            raise LoadFailed(options.load_fails or "")
        if options.load_crash is not None:
            die(options.load_crash)
        self = cls(load, plan, options, text, memory)
        self._child = subprocess.Popen(["sleep", "600"]).pid if options.child else None
        return self

    def info(self) -> InstanceInfo:
        """Return the slots as planned and the capacity, which the options may set apart from them."""
        capacity = self._plan.slots if self._options.capacity is None else self._options.capacity
        detail = {
            "words": len(_WORD.findall(self._text)),
            "hoard_bytes": self._options.hoard_bytes,
            "child": self._child,
        }
        return InstanceInfo(capacity=capacity, context=self._plan.context, slots=self._plan.slots, detail=detail)

    def answer(self, request: Call) -> Awaitable[Any] | AsyncIterator[Any]:
        """Answer `Echo` with `Token`s and an `End`, and any other `Call` with one `EchoAnswer`."""
        return self._stream(request) if isinstance(request, Echo) else self._once(request)

    def close(self) -> None:
        """Give the hoard back; a deaf instance never comes to it."""
        time.sleep(self._options.close_seconds)
        while self._options.deaf:
            time.sleep(60)
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    async def _stream(self, request: Call) -> AsyncIterator[EchoEvent]:
        if request.report:
            yield End(report=self._report())
            return
        with self._counted():
            words = self._words(request)
            said = 0
            async with aclosing(self._say(request, words)) as saying:
                async for word in saying:
                    said += 1
                    yield Token(text=word)
            yield End(usage=Usage(prompt_tokens=len(words), completion_tokens=said))

    async def _once(self, request: Call) -> EchoAnswer:
        if request.report:
            return EchoAnswer(text="", report=self._report())
        with self._counted():
            words = self._words(request)
            said = [word async for word in self._say(request, words, _PACE)]
            usage = Usage(prompt_tokens=len(words), completion_tokens=len(said))
            return EchoAnswer(text="".join(said), usage=usage)

    async def _say(self, request: Call, words: list[str], pace: int = 1) -> AsyncGenerator[str, None]:
        """Yield the tokens one by one, with the faults where the request wants them.

        Others have their turn after `pace` tokens, and before each one that is delayed.
        """
        fault = None if request.error is None else error(request.error)
        if request.block:
            time.sleep(request.block)  # noqa: ASYNC251 - this is the fault that was asked for
        memory = hoard(request.allocate)
        try:
            if memory is not None:
                touch(memory, 0, request.allocate)
            count = len(words) if request.count is None else request.count if words else 0
            for n, word in enumerate(itertools.islice(itertools.cycle(words), count)):
                self._break(request, n, fault)
                if request.delay or n % pace == pace - 1:
                    await asyncio.sleep(request.delay)
                yield f" {word}" if n and n % len(words) == 0 else word
            self._break(request, count, fault, last=True)
            if request.hang:
                await asyncio.Event().wait()
        finally:
            if memory is not None:
                memory.close()

    def _break(self, request: Call, said: int, fault: Exception | None, last: bool = False) -> None:
        """Die or raise once so many tokens are said, at the latest after the last one."""
        if request.crash_after is not None and (said == request.crash_after or (last and said < request.crash_after)):
            die(request.crash)
        if fault is not None and (said == request.error_after or (last and said < request.error_after)):
            raise fault

    def _words(self, request: Call) -> list[str]:
        return _WORD.findall(self._text if request.text is None else request.text)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count one call, and how it ends."""
        counts = self._counts
        counts["started"] += 1
        counts["running"] += 1
        counts["peak"] = max(counts["peak"], counts["running"])
        outcome = "finished"
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "cancelled"
            raise
        except Exception:
            outcome = "failed"
            raise
        finally:
            counts["running"] -= 1
            counts[outcome] += 1

    def _report(self) -> Report:
        return Report(pid=os.getpid(), attempt=self._attempt, **self._counts)


def _options(load: Load) -> EchoOptions:
    return load.engine_options(EchoOptions)


def _steps(total: int, duration: float) -> Iterator[tuple[int, int]]:
    """Yield (done, more) pairs from 0 to `total`, sleeping `duration` seconds in all on the way."""
    steps = max(1, math.ceil(duration / _STEP))
    for step in range(steps):
        time.sleep(duration / steps)
        yield total * step // steps, total * (step + 1) // steps
