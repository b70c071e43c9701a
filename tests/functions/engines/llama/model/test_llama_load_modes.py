"""How weights get into memory (mapped, read, locked) and whether flash attention is really on or off."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ggufs import llamas

from functions.engines.llama.memory import mlock
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.memory.plan import make
from functions.engines.llama.model import log
from functions.engines.llama.model.context import Context
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
from host.errors import LoadFailed
from host.function import Load
from host.manifest import Manifest

OPEN = """
import sys, msgspec
from functions.engines.llama.memory.devices import Target
from functions.engines.llama.model.model import Model
from functions.engines.llama.options import LlamaOptions
def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) << 10
before = status("RssAnon")
model = Model.open(sys.argv[1], msgspec.json.decode(sys.argv[2], type=LlamaOptions), Target())
mapped = sum(sys.argv[1] in line for line in open("/proc/self/maps"))
print(mapped, status("RssAnon") - before, status("VmLck"))
"""


def opened(path: Path, **options: Any) -> tuple[int, int, int]:
    """Return how often the file is mapped, the bytes of weights of its own, and the bytes locked."""
    arguments = [sys.executable, "-c", OPEN, str(path), msgspec.json.encode(options).decode()]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    mapped, own, locked = map(int, done.stdout.split())
    return mapped, own, locked


def test_mapped_or_read(smollm2: Path) -> None:
    size = smollm2.stat().st_size
    mapped, own, locked = opened(smollm2)
    assert mapped and locked == 0
    read, anonymous, _ = opened(smollm2, mmap=False)
    assert not read and anonymous > size * 0.9 and anonymous > own


@pytest.mark.parametrize("mmap", [True, False])
def test_locked(smollm2: Path, mmap: bool) -> None:
    limit = mlock.limit()
    if limit is not None and limit < smollm2.stat().st_size:
        pytest.skip(f"this process may lock {limit} bytes")
    assert opened(smollm2, mlock=True, mmap=mmap)[2] > smollm2.stat().st_size * 0.9


def test_who_may_lock(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nCapEff:\t0000000000004000\n")
    assert mlock.limit(status) is None
    status.write_text("Name:\tx\nCapEff:\t00000000a80425fb\n")
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    expected = None if soft == resource.RLIM_INFINITY else soft
    assert mlock.limit(status) == mlock.limit(tmp_path / "gone") == expected


def plan(path: Path, context: int = 256, **options: Any) -> Any:
    said = Manifest(task="chat", model="x", device="cpu", context=context, slots=1)
    return make(
        Load(manifest=said, path=str(path), engine="llama", options=msgspec.Raw(msgspec.msgpack.encode(options)))
    )


def test_a_lock_that_does_not_hold_is_noted(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(mlock, "limit", lambda: 8 << 20)
    assert any("mlock may keep 8 MiB" in note for note in plan(smollm2, mlock=True).notes)
    assert not plan(smollm2).notes


@pytest.mark.parametrize(("said", "told"), [("on", "enabled"), ("off", "disabled"), ("auto", "auto")])
def test_flash_attention_is_what_was_said(smollm2: Path, said: Any, told: str) -> None:
    model = Model.open(str(smollm2), LlamaOptions(), Target(), sizes_only=True)
    with log.listen() as heard:
        Context.open(model, LlamaOptions(flash_attention=said), Target(), context=256, slots=1).close()
    model.close()
    assert any("flash_attn" in line and line.endswith(told) for _, line in heard)


def test_off_is_really_off(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without it the products of all queries and keys of a batch are kept: the buffers tell.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    on, off = (plan(smollm2, 4096, flash_attention=said).detail["compute"] for said in ("on", "off"))
    assert off > 2 * on


def test_heads_that_cannot_be_quantised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Heads of 16 numbers, and blocks of 32: llama.cpp refuses, in words, when it is asked for a plan.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = llamas.write(tmp_path / "m.gguf", *llamas.llama())
    with pytest.raises(LoadFailed, match=r"V cache type q8_0 .* does not divide"):
        plan(path, cache_type_v="q8_0")
    assert plan(path, cache_type_v="f32").bytes["ram"]


def test_listeners_within_each_other() -> None:
    # Both have heard the same when the inner one goes.
    with log.listen() as outer:
        with log.listen() as inner:
            pass
        assert inner == outer
        log._take(2, b"said later\n", None)
    assert [line for _, line in outer] == ["said later"] and inner == []
