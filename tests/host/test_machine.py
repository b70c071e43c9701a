"""Cores and memory as cgroups tell them: v1, v2, nested limits, none at all. Files lie as the kernel lays them."""

import os

import pytest

from host import machine


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    """Returns a maker of cgroup trees: path -> content; this process is in `/outer/inner`."""
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text("0::/outer/inner\n")
    (proc / "meminfo").write_text("MemTotal: 64000000 kB\nMemAvailable: 32000000 kB\n")
    monkeypatch.setattr(machine, "_PROC", proc)
    root = tmp_path / "cgroup"
    (root / "outer/inner").mkdir(parents=True)

    def make(files):
        for path, content in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content)
        return root

    return make


@pytest.mark.parametrize(
    ("files", "affinity", "cores"),
    [
        ({}, 8, 8),
        ({"outer/inner/cpu.max": "max 100000"}, 8, 8),
        ({"outer/inner/cpu.max": "250000 100000"}, 8, 2),
        ({"outer/inner/cpu.max": "50000 100000"}, 8, 1),
        ({"outer/inner/cpu.max": "600000 100000", "outer/cpu.max": "300000 100000"}, 8, 3),
        ({"outer/inner/cpu.max": "600000 100000"}, 4, 4),
        ({"cpu/cpu.cfs_quota_us": "350000", "cpu/cpu.cfs_period_us": "100000"}, 8, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8, 8),
    ],
)
def test_cores(cgroup, monkeypatch, files, affinity, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)), raising=False)
    assert machine.cores(cgroup(files)) == cores


@pytest.mark.parametrize(
    ("files", "total"),
    [
        ({}, None),
        ({"outer/inner/memory.max": "max"}, None),
        ({"outer/inner/memory.max": "1000000"}, 1_000_000),
        ({"outer/inner/memory.max": "1000000", "outer/memory.max": "500000"}, 500_000),
        ({"memory/memory.limit_in_bytes": "700000"}, 700_000),
        ({"memory/memory.limit_in_bytes": str(1 << 62)}, None),
    ],
)
def test_memory_in_all(cgroup, files, total):
    assert machine.memory_total(cgroup(files)) == (total or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, 32_000_000 * 1024),
        ({"outer/inner/memory.max": "1000", "outer/inner/memory.current": "300"}, 700),
        (
            {
                "outer/inner/memory.max": "1000",
                "outer/inner/memory.current": "900",
                "outer/inner/memory.stat": "anon 100\ninactive_file 500\n",
            },
            600,
        ),
        ({"outer/memory.max": "1000", "outer/memory.current": "2000"}, 0),
        ({"memory/memory.limit_in_bytes": "1000", "memory/memory.usage_in_bytes": "100",
          "memory/memory.stat": "total_inactive_file 50\n"}, 950),
    ],
)  # fmt: skip
def test_memory_that_can_be_had(cgroup, files, available):
    assert machine.memory_available(cgroup(files)) == available


def test_resident_of_this_process_and_of_none(tmp_path):
    assert 10_000_000 < machine.resident(os.getpid()) < 10_000_000_000
    assert machine.resident(1 << 30) is None
    (tmp_path / "7").mkdir()
    (tmp_path / "7/status").write_text("Name: x\nVmRSS:\t  12 kB\n")
    assert machine.resident(7, tmp_path) == 12 * 1024
    (tmp_path / "7/smaps_rollup").write_text("Rss: 20 kB\nPss: 8 kB\n")
    assert machine.resident(7, tmp_path) == 8 * 1024


def test_here_it_tells_something_sane():
    assert machine.cores() >= 1
    assert 0 < machine.memory_available() <= machine.memory_total() * 2
