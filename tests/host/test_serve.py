"""Telling that the server listens."""

import asyncio
from types import SimpleNamespace

import pytest

from host import serve

pytestmark = pytest.mark.anyio


async def test_a_server_that_listens_late_is_told_all_the_same(monkeypatch):
    tried, told, sleep = [], [], asyncio.sleep

    async def connect(host, port):
        tried.append((host, port))
        if len(tried) < 1000:
            raise ConnectionRefusedError
        return None, SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(asyncio, "open_connection", connect)
    monkeypatch.setattr(asyncio, "sleep", lambda _: sleep(0))
    await serve._announce(told.append, "0.0.0.0", 80)
    assert told == ["http://127.0.0.1:80"]
    assert set(tried) == {("127.0.0.1", 80)}
