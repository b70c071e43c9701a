"""Running calls: what becomes of an instance's generator."""

import asyncio
from typing import Any

import pytest

from host.errors import ColdframeError
from host.worker.calls import Calls

pytestmark = pytest.mark.anyio


class Slow:
    """An instance whose generator takes a moment to close."""

    def __init__(self, record: list[str]) -> None:
        self.record = record

    async def answer(self, request: Any) -> Any:
        try:
            for n in range(3):
                yield n
        finally:
            await asyncio.sleep(0.01)
            self.record.append("closed")


class Full:
    """An outlet that takes one answer."""

    def __init__(self, record: list[str]) -> None:
        self.record = record

    def answer(self, call: int, answer: int) -> None:
        if answer:
            raise ColdframeError("no room")

    def fail(self, call: int, error: ColdframeError) -> None:
        self.record.append("failed")

    def end(self, call: int) -> None:
        self.record.append("ended")


async def test_a_stream_is_closed_before_its_end_is_reported():
    record: list[str] = []
    calls = Calls(Slow(record), Full(record))
    calls.start(1, "x")
    while not record or record[-1] == "closed":
        await asyncio.sleep(0.005)
    assert record == ["closed", "failed"]
