"""A house: one running `Runtime` over a folder of echo manifests, without HTTP. The echo plug-in breaks on request."""

import asyncio
import contextlib
import json
import time

import msgspec
import pytest
from coldframe_echo.api import Echo, EchoOnce
from coldframe_echo.operations import ECHO, ECHO_ONCE

from host.lifecycle import budget
from host.runtime import Runtime
from host.settings import read

MIB = 1 << 20
DEADLINE = 60.0
"""Seconds to wait for what must come: many, because the machine may be slow and busy, and only a failure takes them."""


class House:
    """What tests ask: manifests in, calls through `dispatch`, events out."""

    def __init__(self, folder, **settings):
        self.folder = folder
        self.events = []
        given = {"budget": {"ram": 1 << 40}, "stop": 20.0, "drain": 20.0, "grace": 0.0, **settings}
        self.runtime = Runtime(msgspec.structs.replace(read(None), manifests=folder, **given))
        self.runtime.budget._available = None

    def write(self, name, placement="process", options=None, **keys):
        manifest = {
            "task": "echo",
            "model": "package:coldframe_echo/model.echo",
            "placement": placement,
            "options": options or {},
            **keys,
        }
        (self.folder / f"{name}.yaml").write_text(json.dumps(manifest))

    def serve(self, name="a", **keys):
        """Write one more manifest and have it served."""
        self.write(name, **keys)
        self.runtime.catalog.refresh()
        return self.runtime.catalog.find(name)

    async def call(self, name="a", **fields):
        return await self.runtime.dispatch.call(name, ECHO_ONCE, EchoOnce(**{"text": "x", **fields}))

    def start(self, name="a", **fields):
        return asyncio.ensure_future(self.call(name, **fields))

    def stream(self, name="a", **fields):
        return self.runtime.dispatch.stream(name, ECHO, Echo(**{"text": "x", **fields}))

    async def collect(self, name="a", **fields):
        return await self.runtime.dispatch.collect(name, ECHO, Echo(**{"text": "x", **fields}))

    async def report(self, name="a"):
        return (await self.call(name, report=True)).report

    def told(self, kind):
        """The events of one kind so far."""
        return [event for event in self.events if type(event).__name__ == kind]

    def states(self, name="a"):
        return [str(event.new) for event in self.told("StateChanged") if event.name == name]

    @staticmethod
    async def until(condition):
        """Wait until `condition()` holds; fails after `DEADLINE` seconds.

        At first it looks in every turn of the loop, so that nothing that lasts a turn is missed on a slow machine.
        """
        began = time.monotonic()
        async with asyncio.timeout(DEADLINE):
            while not condition():
                await asyncio.sleep(0 if time.monotonic() - began < 2 else 0.005)

    async def begun(self, name="a", running=1):
        """Wait until the instance itself answers so many calls; needs a slot of its own."""
        async with asyncio.timeout(DEADLINE):
            while (await self.report(name)).running != running:
                await asyncio.sleep(0.005)


@pytest.fixture
async def house(tmp_path):
    """Returns a maker of houses; all are closed at the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(**settings):
            made = House(tmp_path, **settings)
            stack.enter_context(made.runtime.listening(made.events.append))
            stack.push_async_callback(made.runtime.stop, 0)
            return made

        yield make


@pytest.fixture
def impatient(monkeypatch):
    """An admission waits but a moment before busy models are paused for it."""
    monkeypatch.setattr(budget, "PATIENCE", 0.1)
