"""Folders that sentence-transformers saved, served here, against sentence-transformers itself on the same folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_transformers
import torch
from sentence_transformers.sentence_transformer import modules as models
from stfolders import TEXTS, dense, far, vectors
from torch import nn

from host.errors import InputTooLong, InvalidRequest, LoadFailed

pytestmark = pytest.mark.anyio

BOUND = 1e-4
KINDS = ["bert", "roberta", "distilbert", "modernbert", "xlm-roberta", "deberta-v2", "mpnet", "qwen3"]
MODES = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


@pytest.mark.parametrize("kind", KINDS)
async def test_architectures(opener: Any, tmp_path: Path, kind: str) -> None:
    mode = "lasttoken" if kind == "qwen3" else "mean"
    theirs = dense(tmp_path, models.Pooling(32, mode), models.Normalize(), kind=kind)
    ours = opener(tmp_path / "st", quantization="fp32")
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND
    assert ours.info().detail["normalized"] is True


@pytest.mark.parametrize("mode", [*MODES, ("cls", "mean"), ("lasttoken", "max", "weightedmean"), tuple(MODES)])
@pytest.mark.parametrize("include", [True, False])
async def test_poolings_with_and_without_the_prompt(opener: Any, tmp_path: Path, mode: Any, include: bool) -> None:
    pooling = models.Pooling(32, mode, include_prompt=include)
    theirs = dense(tmp_path, pooling, prompts={"query": "stone light ", "document": ""})
    ours = opener(tmp_path / "st", quantization="fp32")
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND
    assert far(await vectors(ours, TEXTS, input_type="query"), theirs.encode_query(TEXTS)) < BOUND
    assert far(await vectors(ours, TEXTS, input_type="document"), theirs.encode_document(TEXTS)) < BOUND


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mode", ["lasttoken", "mean", "weightedmean", "cls"])
async def test_decoders_whatever_side_they_are_padded_on(opener: Any, tmp_path: Path, side: str, mode: str) -> None:
    theirs = dense(tmp_path, models.Pooling(32, mode), kind="qwen3", padding_side=side)
    assert theirs.tokenizer.padding_side == side
    assert theirs.tokenizer("river")["input_ids"][-1] == 2  # the end of text that the tokenizer appends
    ours = opener(tmp_path / "st", quantization="fp32")
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND


ACTIVATIONS = [
    nn.Tanh(),
    nn.Identity(),
    nn.ReLU(),
    nn.GELU(),
    nn.SiLU(),
    nn.Sigmoid(),
    nn.Mish(),
    nn.LeakyReLU(),
    nn.ELU(),
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda one: type(one).__name__)
async def test_dense_layers_with_their_activations(opener: Any, tmp_path: Path, activation: nn.Module) -> None:
    layer = models.Dense(32, 8, activation_function=activation)
    theirs = dense(tmp_path, models.Pooling(32), layer, models.Normalize())
    ours = opener(tmp_path / "st", quantization="fp32")
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND
    assert ours.info().detail["dimension"] == 8


@pytest.mark.parametrize("size", [32, 8])
async def test_residual_dense_layers_and_layer_norms(opener: Any, tmp_path: Path, size: int) -> None:
    norm = models.LayerNorm(size)
    with torch.no_grad():
        norm.norm.weight.copy_(torch.randn(size))
        norm.norm.bias.copy_(torch.randn(size))
    layers = [models.Dense(32, size, use_residual=True), models.Dropout(0.5), norm]
    theirs = dense(tmp_path, models.Pooling(32), *layers)
    ours = opener(tmp_path / "st", quantization="fp32")
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND


async def test_the_default_prompt(opener: Any, tmp_path: Path) -> None:
    prompts = {"query": "river ", "sts": "paper music "}
    theirs = dense(tmp_path, models.Pooling(32), prompts=prompts, default_prompt_name="sts")
    ours = opener(tmp_path / "st", quantization="fp32")
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND
    assert far(await vectors(ours, TEXTS, prompt_name="query"), theirs.encode(TEXTS, prompt_name="query")) < BOUND
    assert far(await vectors(ours, TEXTS, input_type="document"), theirs.encode_document(TEXTS)) < BOUND


async def test_what_is_too_long_is_cut_at_the_files_length(opener: Any, tmp_path: Path) -> None:
    theirs = dense(tmp_path, models.Pooling(32, "weightedmean"), max_seq_length=9)
    assert theirs.max_seq_length == 9
    ours = opener(tmp_path / "st", {"truncate": True}, quantization="fp32")
    assert ours.info().context == 9
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND
    with pytest.raises(InputTooLong, match="the model takes 9"):
        await vectors(ours, TEXTS, truncate=False)


async def test_the_files_own_length_goes_before_the_tokenizers(opener: Any, tmp_path: Path) -> None:
    """`max_seq_length` of older folders replaces the tokenizer's `model_max_length`, be it smaller or larger."""
    theirs = dense(tmp_path, models.Pooling(32), limit=8)
    for said in (6, 20):
        (tmp_path / "st" / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": said}))
        theirs = type(theirs)(str(tmp_path / "st"), device="cpu")
        ours = opener(tmp_path / "st", {"truncate": True}, quantization="fp32")
        assert theirs.max_seq_length == ours.info().context == said
        assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND


async def test_lower_case(opener: Any, tmp_path: Path) -> None:
    theirs = dense(tmp_path, models.Pooling(32), do_lower_case=True)
    texts = ["RIVER stone", "Light of the Window"]
    ours = opener(tmp_path / "st", quantization="fp32")
    assert far(await vectors(ours, texts), theirs.encode(texts)) < BOUND
    assert far(await vectors(ours, texts), await vectors(ours, [text.lower() for text in texts])) < 1e-6


@pytest.mark.parametrize("size", [4, 16, 31])
async def test_matryoshka(opener: Any, tmp_path: Path, size: int) -> None:
    theirs = dense(tmp_path, models.Pooling(32), models.Normalize(), truncate_dim=size)
    ours = opener(tmp_path / "st", {"matryoshka": True}, quantization="fp32")
    cut = theirs.encode(TEXTS, normalize_embeddings=True)
    assert cut.shape == (len(TEXTS), size)
    assert far(await vectors(ours, TEXTS, dimensions=size), cut) < BOUND


OLD = {
    "Transformer": "sentence_transformers.models.Transformer",
    "Pooling": "sentence_transformers.models.Pooling",
    "Dense": "sentence_transformers.models.Dense",
    "Normalize": "sentence_transformers.models.Normalize",
}


@pytest.mark.parametrize("mode", MODES)
async def test_folders_of_older_releases(opener: Any, tmp_path: Path, mode: str) -> None:
    """Paths of classes, a flag for each way of pooling, and settings as releases before 5 wrote them."""
    dense(tmp_path, models.Pooling(32, mode), models.Dense(32, 8), models.Normalize())
    folder = tmp_path / "st"
    listed = json.loads((folder / "modules.json").read_text())
    for entry in listed:
        entry["type"] = OLD[entry["type"].rpartition(".")[2]]
    (folder / "modules.json").write_text(json.dumps(listed))
    flags = {
        "cls": "cls_token",
        "max": "max_tokens",
        "mean": "mean_tokens",
        "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    }
    flags |= {"weightedmean": "weightedmean_tokens", "lasttoken": "lasttoken"}
    old = {f"pooling_mode_{flag}": name == mode for name, flag in flags.items()}
    (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 32, **old}))
    (folder / "2_Dense/config.json").write_text(
        json.dumps(
            {
                "in_features": 32,
                "out_features": 8,
                "bias": True,
                "activation_function": "torch.nn.modules.activation.Tanh",
            }
        )
    )
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 40, "do_lower_case": False}))
    (folder / "3_Normalize/config.json").unlink()
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    ours = opener(folder, quantization="fp32")
    assert ours.info().context == 40
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND


@pytest.mark.parametrize("kind", ["bert", "distilbert", "modernbert", "xlm-roberta", "qwen3"])
@pytest.mark.parametrize("start", [0, 1])
async def test_weighted_layers(opener: Any, tmp_path: Path, kind: str, start: int) -> None:
    weights = nn.Parameter(torch.tensor([0.2, 3.0, -0.7][start:]))
    layers = models.WeightedLayerPooling(32, 2, start, layer_weights=weights)
    pooling = models.Pooling(32, "mean", include_prompt=False)
    theirs = dense(
        tmp_path, layers, pooling, kind=kind, prompts={"query": "paper "}, config_kwargs={"output_hidden_states": True}
    )
    features = theirs[0](theirs.tokenize(TEXTS[:1]))
    last = features["token_embeddings"].detach().numpy()
    assert far(last, theirs[1](features)["token_embeddings"].detach()) > 0.1
    ours = opener(tmp_path / "st")
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND
    assert far(await vectors(ours, TEXTS, input_type="query"), theirs.encode_query(TEXTS)) < BOUND
    assert any(f"weighted mean of layers from {start} on" in note for note in ours._routes[""].model.layout.notes)


async def test_weighted_layers_that_the_model_does_not_give(opener: Any, tmp_path: Path) -> None:
    """Without `output_hidden_states` sentence-transformers passes the module over; so is it done here, and told."""
    theirs = dense(tmp_path, models.WeightedLayerPooling(32, 2, 1), models.Pooling(32))
    ours = opener(tmp_path / "st")
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND
    assert any("WeightedLayerPooling does nothing" in note for note in ours._routes[""].model.layout.notes)


async def test_weighted_layers_on_what_the_machine_does_best(opener: Any, tmp_path: Path) -> None:
    layers = models.WeightedLayerPooling(32, 2, 1)
    theirs = dense(
        tmp_path, layers, models.Pooling(32), models.Normalize(), config_kwargs={"output_hidden_states": True}
    )
    found = await vectors(opener(tmp_path / "st", quantization=None), TEXTS)
    assert (found * theirs.encode(TEXTS)).sum(1).min() > 0.999


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layer_start": 2}, "weighs 2 layers from 2 on, but the model has 2 behind its first"),
        ({"layer_start": -1}, "layer_start -1 is no layer's number"),
        ({"layer_start": "x"}, "layer_start 'x' is no layer's number"),
    ],
)
def test_what_is_wrong_with_weighted_layers(opener: Any, tmp_path: Path, change: Any, said: str) -> None:
    layers = models.WeightedLayerPooling(32, 2, 1)
    dense(tmp_path, layers, models.Pooling(32), config_kwargs={"output_hidden_states": True})
    file = tmp_path / "st" / "1_WeightedLayerPooling" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(LoadFailed, match=said):
        opener(tmp_path / "st")


UNSERVED = {
    "WeightedLayerPooling is not served in this place": lambda: [
        models.Pooling(32),
        models.WeightedLayerPooling(32, 2, 1),
    ],
    "CNN is not served": lambda: [models.CNN(32, 16), models.Pooling(48)],
    "LSTM is not served": lambda: [models.LSTM(32, 16), models.Pooling(32)],
    "a Transformer and then a Pooling": lambda: [_tokenwise(), models.Pooling(8)],
}


def _tokenwise() -> Any:
    return models.Dense(32, 8, module_input_name="token_embeddings")


@pytest.mark.parametrize("said", UNSERVED)
def test_modules_that_are_not_served_are_named(opener: Any, tmp_path: Path, said: str) -> None:
    dense(tmp_path, *UNSERVED[said]())
    with pytest.raises(LoadFailed, match=said):
        opener(tmp_path / "st")


def test_bags_of_words_are_refused_by_name(opener: Any, tmp_path: Path) -> None:
    bag = models.BoW(vocab=["river", "stone"])
    sentence_transformers.SentenceTransformer(modules=[bag], device="cpu").save(str(tmp_path / "st"))
    with pytest.raises(LoadFailed, match="BoW is not served"):
        opener(tmp_path / "st")


def test_outputs_that_nobody_reads_are_refused(opener: Any, tmp_path: Path) -> None:
    """A layer that writes beside the vector changes nothing in sentence-transformers; taking it as usual would."""
    dense(tmp_path, models.Pooling(32), models.Dense(32, 8, module_output_name="aside"))
    with pytest.raises(LoadFailed, match="module_output_name that is not its module_input_name is not served"):
        opener(tmp_path / "st")


async def test_prompts_without_a_text_go_before_the_default_one(opener: Any, tmp_path: Path) -> None:
    prompts = {"sts": "paper music ", "document": ""}
    theirs = dense(tmp_path, models.Pooling(32), prompts=prompts, default_prompt_name="sts")
    ours = opener(tmp_path / "st")
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND
    for name in ("document", "query"):
        assert far(await vectors(ours, TEXTS, prompt_name=name), theirs.encode(TEXTS, prompt_name=name)) < BOUND
    with pytest.raises(InvalidRequest, match="this model's prompts: document, query, sts"):
        await vectors(ours, TEXTS, prompt_name="nowhere")


async def test_activations_are_torchs_own_only(opener: Any, tmp_path: Path) -> None:
    dense(tmp_path, models.Pooling(32), models.Dense(32, 8))
    place = tmp_path / "st" / "2_Dense" / "config.json"
    said = json.loads(place.read_text())
    for name in (
        "os.system",
        "torch.hub.load",
        "torch.nn.MultiheadAttention",
        "torch.nn.modules.linear.Linear",
        "Tanh",
    ):
        place.write_text(json.dumps(said | {"activation_function": name}))
        with pytest.raises(LoadFailed, match="is not served: expected one of"):
            opener(tmp_path / "st")


async def test_batches_change_no_vector(opener: Any, tmp_path: Path) -> None:
    dense(tmp_path, models.Pooling(32), models.Normalize(), kind="modernbert")
    ours = opener(tmp_path / "st", quantization="fp32")
    alone = np.concatenate([await vectors(ours, text) for text in TEXTS])
    assert far(await vectors(ours, TEXTS), alone) < 1e-5
