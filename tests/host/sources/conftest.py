"""A hub, a cache of its own for each test, and a notebook for progress."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from functions.engines.checkpoint.file_format import CHECKPOINT
from functions.engines.llama.file_format import GGUF
from functions.engines.onnx.file_format import ONNX
from host.function import ModelRequest
from tests.hub import FakeHub

FORMATS = (CHECKPOINT, GGUF, ONNX)


class Notes(list[tuple[str, int, int]]):
    """A progress callable that writes down what it is told."""

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        self.append((stage, done, total))


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache; online, without a token, and without waiting between attempts."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))
    monkeypatch.setattr("host.sources.hub_client.PAUSES", (0.0, 0.0))
    monkeypatch.setattr("host.sources.download.PATIENCE", (0.0, 0.0, 0.0, 0.0))
    return tmp_path / "hf" / "hub"


@pytest.fixture
def hub(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with FakeHub() as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.url)
        yield fake


@pytest.fixture
def wanted(tmp_path: Path) -> Any:
    def make(model: str, **more: Any) -> ModelRequest:
        return ModelRequest(model=model, base=tmp_path, **{"formats": FORMATS, **more})

    return make
