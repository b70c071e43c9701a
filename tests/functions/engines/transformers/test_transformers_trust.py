"""Models that bring their own Python code: it runs where the manifest trusts it, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loads
import numpy as np
import pytest
import safetensors.torch
import tinymodels
import torch
import transformers

from functions.embeddings.api import EmbeddingsRequest
from functions.embeddings.transformers import TransformersEmbeddings
from functions.engines.batching.item import Item
from functions.engines.transformers.classifier import TransformersClassifierModel
from host.errors import LoadFailed

CONFIGURATION = """
import os
from pathlib import Path

from transformers import PretrainedConfig

Path(os.environ["OWN_CODE_RAN"]).touch()


class OwnConfig(PretrainedConfig):
    model_type = "own-kind"

    def __init__(self, vocab_size=40, hidden_size=32, max_position_embeddings=64, **more):
        super().__init__(**more)
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.max_position_embeddings = max_position_embeddings
"""

MODELING = """
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput

from .configuration_own import OwnConfig


class OwnModel(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.mixed = nn.Linear(config.hidden_size, config.hidden_size)
        self.post_init()

    def forward(self, input_ids, attention_mask):
        return BaseModelOutput(last_hidden_state=self.mixed(self.words(input_ids)).tanh())


class OwnClassifier(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.own = OwnModel(config)
        self.head = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask):
        hidden = self.own(input_ids, attention_mask).last_hidden_state * attention_mask.unsqueeze(-1)
        return SequenceClassifierOutput(logits=self.head(hidden.sum(1)))
"""

TEXTS = ["river stone light", "winter music train bread letter garden", "paper"]
TRUST = {"trust_remote_code": True}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let Transformers copy models' code into a folder of these tests; it imports it from there, once in a process."""
    with pytest.MonkeyPatch.context() as patch:
        there = str(tmp_path_factory.mktemp("modules"))
        patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", there)
        patch.syspath_prepend(there)
        yield


@pytest.fixture(autouse=True)
def ran(modules: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that the model's own code makes when it runs."""
    monkeypatch.setenv("OWN_CODE_RAN", str(tmp_path / "ran"))
    return tmp_path / "ran"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Save a model of an architecture that only its own code knows."""
    made = tmp_path / f"own_{tmp_path.name}"
    made.mkdir()
    (made / "configuration_own.py").write_text(CONFIGURATION)
    (made / "modeling_own.py").write_text(MODELING)
    labels = {"0": "a", "1": "b", "2": "c"}
    config = {
        "model_type": "own-kind",
        "auto_map": {
            "AutoConfig": "configuration_own.OwnConfig",
            "AutoModel": "modeling_own.OwnModel",
            "AutoModelForSequenceClassification": "modeling_own.OwnClassifier",
        },
        "vocab_size": 40,
        "hidden_size": 32,
        "max_position_embeddings": 64,
        "pad_token_id": 1,
        "id2label": labels,
        "label2id": {label: int(at) for at, label in labels.items()},
    }
    tinymodels.write(made, {"config.json": config, "tokenizer_config.json": {"model_max_length": 64}})
    tinymodels.words_tokenizer().save(str(made / "tokenizer.json"))
    weights(made, "")
    return made


def weights(folder: Path, prefix: str) -> None:
    torch.manual_seed(9)
    names = {"words.weight": (40, 32), "mixed.weight": (32, 32), "mixed.bias": (32,)}
    tensors = {prefix + name: torch.randn(shape) for name, shape in names.items()}
    if prefix:
        tensors |= {"head.weight": torch.randn(3, 32), "head.bias": torch.randn(3)}
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture
def embedder() -> Iterator[Callable[..., TransformersEmbeddings]]:
    opened: list[TransformersEmbeddings] = []

    def open_(path: Path, options: dict[str, Any], **manifest: Any) -> TransformersEmbeddings:
        load = loads.given("embeddings", path, {"pooling": "mean", **options}, **manifest)
        opened.append(TransformersEmbeddings.load(load, TransformersEmbeddings.plan(load), loads.ignore))
        return opened[-1]

    yield open_
    for instance in opened:
        instance.close()


@pytest.mark.parametrize("options", [{}, {"trust_remote_code": False}])
def test_it_is_refused_and_not_run_unless_trusted(
    folder: Path, ran: Path, embedder: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(LoadFailed, match="'own-kind' brings its own Python code, which is not run") as caught:
        embedder(folder, options)
    assert "trust_remote_code: true" in caught.value.message
    assert str(folder) not in caught.value.message
    assert not ran.exists()


def test_planning_runs_nothing(folder: Path, ran: Path) -> None:
    load = loads.given("embeddings", folder, {"pooling": "mean", **TRUST})
    assert TransformersEmbeddings.plan(load).context == 64
    assert not ran.exists()


@pytest.mark.parametrize("quantization", ["fp32", "int8"])
def test_vectors_of_a_trusted_model(folder: Path, ran: Path, embedder: Any, quantization: str) -> None:
    instance = embedder(folder, TRUST, quantization=quantization)
    assert ran.exists()
    detail = instance.info().detail
    assert (detail["architecture"], detail["dtype"]) == ("OwnModel", quantization)
    assert detail["padding"] == "to the longest of a batch"
    found = asyncio.run(instance.answer(EmbeddingsRequest(model="m", input=TEXTS)))
    rows = np.frombuffer(found.data, dtype="<f4").reshape(len(TEXTS), -1)
    direct = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
    words = tinymodels.words_tokenizer()
    for row, text in zip(rows, TEXTS, strict=True):
        ids = torch.tensor([words.encode(text).ids])
        with torch.no_grad():
            expected = direct(ids, torch.ones_like(ids)).last_hidden_state[0].mean(0).numpy()
        cosine = float(row @ expected / np.linalg.norm(row) / np.linalg.norm(expected))
        assert cosine > (0.999999 if quantization == "fp32" else 0.98)


def test_logits_of_a_trusted_model(folder: Path, ran: Path) -> None:
    weights(folder, "own.")
    load = loads.given("classify", folder, TRUST)
    model = TransformersClassifierModel.load(load, TransformersClassifierModel.plan(load), loads.ignore, "sequence")
    try:
        assert model.labels == ("a", "b", "c")

        async def ask() -> list[Any]:
            return await model.logits([Item(ids=ids) for ids in await model.tokenizer.encode(TEXTS)])

        found = np.stack(asyncio.run(ask()))
        # Code that is not the library's may keep something between calls: one thread computes it.
        assert len(model._batcher._threads) == 1
    finally:
        model.close()
    direct = transformers.AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True).eval()
    for row, text in zip(found, TEXTS, strict=True):
        ids = torch.tensor([tinymodels.words_tokenizer().encode(text).ids])
        with torch.no_grad():
            np.testing.assert_allclose(row, direct(ids, torch.ones_like(ids)).logits[0].numpy(), atol=1e-4)


def test_a_head_without_trust_is_refused(folder: Path, ran: Path) -> None:
    weights(folder, "own.")
    load = loads.given("classify", folder)
    with pytest.raises(LoadFailed, match="trust_remote_code: true"):
        TransformersClassifierModel.load(load, TransformersClassifierModel.plan(load), loads.ignore, "sequence")
    assert not ran.exists()


def test_code_that_fails_says_so(folder: Path, embedder: Any) -> None:
    (folder / "configuration_own.py").write_text("raise ValueError('boom in ' + __file__)\n")
    with pytest.raises(LoadFailed, match="Python code of model type 'own-kind' fails: boom in"):
        embedder(folder, TRUST)


def test_code_that_is_missing_says_so(folder: Path, embedder: Any) -> None:
    (folder / "configuration_own.py").unlink()
    with pytest.raises(LoadFailed, match="Python code of model type 'own-kind' fails") as caught:
        embedder(folder, TRUST)
    assert str(folder) not in caught.value.message


def test_weights_are_safetensors_all_the_same(folder: Path, embedder: Any, ran: Path) -> None:
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(LoadFailed, match="is a pickle"):
        embedder(folder, TRUST)
    assert not ran.exists()


@pytest.mark.parametrize("options", [{}, TRUST])
def test_a_model_that_needs_no_code_loads_either_way(
    tmp_path: Path, embedder: Any, ran: Path, options: dict[str, Any]
) -> None:
    instance = embedder(tinymodels.tiny(tmp_path / "bert"), options)
    assert instance.info().detail["architecture"] == "BertModel"
    assert not ran.exists()
