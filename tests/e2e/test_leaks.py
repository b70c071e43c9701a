"""What is left after much use: no task, no descriptor, no process, no memory."""

import concurrent.futures
from pathlib import Path

import httpx
import pytest

from host.machine import resident


def descriptors(host):
    return len(list(Path(f"/proc/{host.process.pid}/fd").iterdir()))


def use(host, n):
    """One of two hundred calls; every fourth leaves before its answer, every tenth meets a crash."""
    try:
        if n % 4 == 0:
            body = {"model": "a", "text": "x", "hang": True, "stream": n % 8 == 0}
            httpx.post(f"{host.url}/v1/echo", json=body, timeout=httpx.Timeout(60, read=0.1))
        elif n % 50 == 1:
            host.echo("b", crash_after=0)
        else:
            host.echo("ab"[n % 2], text="1 2 3", stream=n % 3 == 0)
    except httpx.HTTPError:
        pass


@pytest.mark.slow
def test_nothing_is_left_over_after_two_hundred_calls(start):
    host = start({"a": {"queue": {"size": 500}}, "b": {}})
    for n in range(8):
        use(host, n)
    before, tree = at_rest(host)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: use(host, n), range(200)))
    for name in "ab":
        host.until(lambda name=name: host.status(name)["in_flight"] + host.status(name)["waiting"] == 0)
    host.until(lambda: all(now <= then for now, then in zip(at_rest(host), (before + 1, tree), strict=True)))
    assert host.echo("a").status_code == 200


def at_rest(host):
    """The descriptors and processes of a host that was asked for nothing and told to unload both."""
    for name in "ab":
        host.client.post(f"/v1/functions/{name}/unload")
    host.client.close()
    found = descriptors(host), len(host.tree())
    host.client = httpx.Client(base_url=host.url, timeout=60)
    return found


@pytest.mark.slow
def test_memory_is_given_back_to_within_ten_megabytes(start):
    """The whole process tree, before the load and after the eviction."""
    host = start({"a": {"options": {"hoard_bytes": 200_000_000}}, "small": {}})
    host.echo("small")
    host.client.post("/v1/functions/small/unload")
    before = memory(host)
    for _ in range(3):
        assert host.echo("a").status_code == 200
        assert memory(host) - before > 190_000_000
        host.client.post("/v1/functions/a/unload")
        assert memory(host) - before < 10_000_000


@pytest.mark.slow
def test_many_loads_and_evictions_leave_no_descriptor(start):
    host = start({"a": {}})
    before = []
    for n in range(25):
        host.echo("a", text=str(n))
        host.client.post("/v1/functions/a/unload")
        if n == 4:
            size = memory(host)
        if n < 10:
            before.append(descriptors(host))
    host.until(lambda: descriptors(host) <= min(before))
    host.until(lambda: len(host.tree()) == 2)
    assert memory(host) - size < 10_000_000
    forkserver = next(pid for pid in host.tree() if pid != host.process.pid)
    assert len(list(Path(f"/proc/{forkserver}/fd").iterdir())) < 10


def memory(host):
    return sum(resident(pid) or 0 for pid in host.tree())
