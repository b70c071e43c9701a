"""Sparse vectors and those of tokens, against sentence-transformers' own encoders on the same folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import sentence_transformers
import torch
import transformers
from loads import given
from sentence_transformers.multi_vector_encoder import modules as late
from sentence_transformers.sentence_transformer import modules as models
from sentence_transformers.sparse_encoder import modules as sparse
from stfolders import CONFIG, TEXTS, ask, base, dense, far, full, masked, saved, tokenizer, vectors

from functions.embeddings.api import TokenVectors
from functions.embeddings.transformers import TransformersEmbeddings
from host.errors import InputTooLong, InvalidRequest, LoadFailed

pytestmark = pytest.mark.anyio

BOUND = 1e-4
QUERIES = ["river stone", "light . paper", "number window garden paper winter"]


def matrices(found: TokenVectors | None) -> list[np.ndarray]:
    assert found is not None
    rows = np.frombuffer(found.data, "<f4").reshape(-1, found.dimension)
    return np.split(rows, np.cumsum(found.counts)[:-1])


@pytest.mark.parametrize("kind", ["bert", "distilbert", "modernbert", "xlm-roberta"])
async def test_splade_in_many_architectures(opener: Any, tmp_path: Path, kind: str) -> None:
    first = models.Transformer(str(masked(tmp_path / "base", kind)), transformer_task="fill-mask")
    theirs = saved(sentence_transformers.SparseEncoder(modules=[first, sparse.SpladePooling()]), tmp_path / "st")
    ours = opener(tmp_path / "st", quantization="fp32")
    expected = theirs.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    assert (expected > 0).any()
    found = await ask(ours, TEXTS, embedding_type="sparse")
    assert far(full(found.sparse, 40), expected) < BOUND
    assert (found.data, found.dimension, found.colbert) == (b"", 0, None)
    assert found.usage.prompt_tokens > len(TEXTS)
    assert ours.info().detail["embedding_types"] == ["sparse"]


def test_the_plan_counts_the_logits_of_batches_side_by_side(tmp_path: Path) -> None:
    first = models.Transformer(str(masked(tmp_path / "base", "bert")), transformer_task="fill-mask")
    saved(sentence_transformers.SparseEncoder(modules=[first, sparse.SpladePooling()]), tmp_path / "st")
    plans = [TransformersEmbeddings.plan(given("embeddings", tmp_path / "st", threads=count)) for count in (1, 2)]
    states = plans[1].detail["activations"] - plans[0].detail["activations"]
    assert plans[1].bytes["ram"] - plans[0].bytes["ram"] - states == 512 * 40 * 4 * 3


@pytest.mark.parametrize("strategy", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
@pytest.mark.parametrize("most", [None, 5])
async def test_ways_of_splade(opener: Any, tmp_path: Path, strategy: Any, activation: Any, most: int | None) -> None:
    first = models.Transformer(str(masked(tmp_path / "base", "bert")), transformer_task="fill-mask")
    pooling = sparse.SpladePooling(strategy, activation)
    made = sentence_transformers.SparseEncoder(
        modules=[first, pooling], prompts={"query": "music "}, max_active_dims=most
    )
    theirs = saved(made, tmp_path / "st")
    ours = opener(tmp_path / "st", quantization="fp32")
    for kind, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        expected = encode(TEXTS, convert_to_sparse_tensor=False).numpy()
        found = await ask(ours, TEXTS, embedding_type="sparse", input_type=kind)
        assert far(full(found.sparse, 40), expected) < BOUND
        assert most is None or (found.sparse is not None and max(found.sparse.counts) <= most)


async def test_splade_folders_of_older_releases(opener: Any, tmp_path: Path) -> None:
    first = models.Transformer(str(masked(tmp_path / "base", "bert")), transformer_task="fill-mask")
    theirs = saved(sentence_transformers.SparseEncoder(modules=[first, sparse.SpladePooling()]), tmp_path / "st")
    listed = json.loads((tmp_path / "st/modules.json").read_text())
    listed[0]["type"] = "sentence_transformers.sparse_encoder.models.MLMTransformer"
    listed[1]["type"] = "sentence_transformers.sparse_encoder.models.SpladePooling"
    (tmp_path / "st/modules.json").write_text(json.dumps(listed))
    (tmp_path / "st/sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 60, "do_lower_case": False}))
    ours = opener(tmp_path / "st", quantization="fp32")
    found = await ask(ours, TEXTS, embedding_type="sparse")
    assert far(full(found.sparse, 40), theirs.encode(TEXTS, convert_to_sparse_tensor=False).numpy()) < BOUND


def multi(folder: Path, *more: Any, added: tuple[str, ...] = (), kind: str = "bert", **transformer: Any) -> Any:
    """Save and return a MultiVectorEncoder with a projection to 8 numbers."""
    given = {key: transformer.pop(key) for key in ("prompts",) if key in transformer}
    first = models.Transformer(str(base(folder / "base", kind, added=added)), **transformer)
    layer = models.Dense(
        32, 8, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings"
    )
    scale = models.Normalize(module_input_name="token_embeddings")
    made = sentence_transformers.MultiVectorEncoder(modules=[first, layer, *more, scale], device="cpu", **given)
    return saved(made, folder / "st")


async def same(ours: Any, theirs: Any) -> None:
    """Assert that queries and documents have the vectors of a MultiVectorEncoder."""
    for kind, texts, encode in (("query", QUERIES, theirs.encode_query), ("document", TEXTS, theirs.encode_document)):
        expected = encode(texts, convert_to_numpy=True)
        found = matrices((await ask(ours, texts, embedding_type="colbert", input_type=kind)).colbert)
        assert [part.shape for part in found] == [part.shape for part in expected], kind
        assert max(far(one, other) for one, other in zip(found, expected, strict=True)) < BOUND, kind


@pytest.mark.parametrize("attend", [False, True])
@pytest.mark.parametrize("strategy", ["fixed", "min"])
@pytest.mark.parametrize("kind", ["bert", "modernbert", "xlm-roberta"])
async def test_late_interaction(opener: Any, tmp_path: Path, attend: bool, strategy: str, kind: str) -> None:
    mask = late.MultiVectorMask(skiplist_words=[".", ",", "nowhere"])
    expansion = {"strategy": strategy, "attend": attend, "length": 12}
    theirs = multi(
        tmp_path,
        mask,
        kind=kind,
        query_expansion=expansion,
        document_length=50,
        prompts={"query": "music ", "document": "bread "},
    )
    ours = opener(tmp_path / "st", quantization="fp32")
    await same(ours, theirs)
    found = await ask(ours, QUERIES, embedding_type="colbert", input_type="query")
    assert found.colbert is not None
    assert found.colbert.counts == [12, 12, 12]
    assert found.colbert.dimension == ours.info().detail["token_dimension"] == 8


async def test_queries_longer_than_the_expansion(opener: Any, tmp_path: Path) -> None:
    expansion = {"strategy": "fixed", "attend": False, "length": 5}
    theirs = multi(tmp_path, late.MultiVectorMask(), query_expansion=expansion)
    ours = opener(tmp_path / "st", quantization="fp32")
    with pytest.raises(InputTooLong, match=r"input\[2\].*the model takes 5"):
        await ask(ours, QUERIES, embedding_type="colbert", input_type="query")
    found = await ask(ours, QUERIES, embedding_type="colbert", input_type="query", truncate=True)
    expected = theirs.encode_query(QUERIES, convert_to_numpy=True)
    assert max(far(one, other) for one, other in zip(matrices(found.colbert), expected, strict=True)) < BOUND


async def test_skipping_in_queries_and_no_expansion(opener: Any, tmp_path: Path) -> None:
    theirs = multi(tmp_path, late.MultiVectorMask(skiplist_words=["."], skiplist_tasks=["query", "document"]))
    await same(opener(tmp_path / "st", quantization="fp32"), theirs)


async def test_only_some_tokens_of_documents(opener: Any, tmp_path: Path) -> None:
    theirs = multi(tmp_path, late.MultiVectorMask(keep_only_token_ids=[4, 5, 6]))
    ours = opener(tmp_path / "st", quantization="fp32")
    texts = [text for text in TEXTS if "river" in text or "light" in text]
    found = matrices((await ask(ours, texts, embedding_type="colbert", input_type="document")).colbert)
    expected = theirs.encode_document(texts, convert_to_numpy=True)
    assert max(far(one, other) for one, other in zip(found, expected, strict=True)) < BOUND


async def test_mask_tokens_are_not_counted_as_used(opener: Any, tmp_path: Path) -> None:
    multi(tmp_path, late.MultiVectorMask(), query_expansion={"strategy": "fixed", "length": 20})
    found = await ask(opener(tmp_path / "st"), "river stone", embedding_type="colbert", input_type="query")
    assert found.colbert is not None
    assert (found.colbert.counts, found.usage.prompt_tokens) == ([20], 4)


async def test_what_the_machine_does_best_is_close(opener: Any, tmp_path: Path) -> None:
    """Without a `quantization` it may be bf16, packed; expanded queries go their own way through the same model."""
    theirs = multi(tmp_path, late.MultiVectorMask(), query_expansion={"strategy": "fixed", "length": 12})
    ours = opener(tmp_path / "st", quantization=None)
    for kind, texts, encode in (("query", QUERIES, theirs.encode_query), ("document", TEXTS, theirs.encode_document)):
        found = matrices((await ask(ours, texts, embedding_type="colbert", input_type=kind)).colbert)
        for one, other in zip(found, encode(texts, convert_to_numpy=True), strict=True):
            assert (one * other).sum(1).min() > 0.99


async def test_texts_are_documents_when_nobody_says(opener: Any, tmp_path: Path) -> None:
    multi(tmp_path, late.MultiVectorMask(skiplist_words=["."]), prompts={"document": "bread "})
    ours = opener(tmp_path / "st", quantization="fp32")
    silent, said = [
        await ask(ours, TEXTS, embedding_type="late_interaction", **more) for more in ({}, {"input_type": "document"})
    ]
    assert silent == said


@pytest.mark.parametrize("skip", [None, ["."], []])
async def test_pylates_folders(opener: Any, tmp_path: Path, skip: list[str] | None) -> None:
    """Two modules and settings of the whole, as PyLate 1 writes them; its markers are tokens of the vocabulary."""
    multi(tmp_path, late.MultiVectorMask(), added=("[Q] ", "[D] "))
    folder = tmp_path / "st"
    listed = json.loads((folder / "modules.json").read_text())[:2]
    listed[0]["type"], listed[1]["type"] = "sentence_transformers.models.Transformer", "pylate.models.Dense.Dense"
    (folder / "modules.json").write_text(json.dumps(listed))
    said = {"in_features": 32, "out_features": 8, "bias": False}
    said["activation_function"] = "torch.nn.modules.linear.Identity"
    (folder / "1_Dense/config.json").write_text(json.dumps(said))
    settings = {"model_type": "ColBERT", "query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 10}
    settings |= {"document_length": 30, "attend_to_expansion_tokens": False, "prompts": {}, "skiplist_words": skip}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 29, "do_lower_case": False}))
    theirs = sentence_transformers.MultiVectorEncoder(str(folder), device="cpu")
    ours = opener(folder, {"truncate": True}, quantization="fp32")
    await same(ours, theirs)
    without = await ask(ours, ["river stone"], embedding_type="colbert")
    assert without.usage.prompt_tokens == 5  # <s>, [D], two words, </s>


@pytest.mark.parametrize(
    "metadata", [None, {"query_maxlen": 9, "doc_maxlen": 40, "mask_punctuation": False, "attend_to_mask_tokens": True}]
)
async def test_stanfords_folders(opener: Any, tmp_path: Path, metadata: dict[str, Any] | None) -> None:
    folder = base(tmp_path / "st")
    tensors = {f"bert.{key}": value for key, value in safetensors.torch.load_file(folder / "model.safetensors").items()}
    torch.manual_seed(1)
    tensors["linear.weight"] = torch.randn(8, 32)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
    if metadata is not None:
        (folder / "artifact.metadata").write_text(json.dumps(metadata))
    theirs = sentence_transformers.MultiVectorEncoder(str(folder), device="cpu")
    await same(opener(folder, quantization="fp32"), theirs)


def m3(folder: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    """Save a folder laid out as BGE-M3's, with its two layers as safetensors."""
    dense(folder, models.Pooling(32, "cls"), models.Normalize(), kind="xlm-roberta")
    torch.manual_seed(5)
    layers = {"sparse": (torch.randn(1, 32), torch.randn(1)), "colbert": (torch.randn(32, 32), torch.randn(32))}
    for name, (weight, bias) in layers.items():
        safetensors.torch.save_file({"weight": weight, "bias": bias}, folder / "st" / f"{name}_linear.safetensors")
    return folder / "st", {
        f"{name}.{part}": tensor
        for name, pair in layers.items()
        for part, tensor in zip(("weight", "bias"), pair, strict=True)
    }


async def test_all_three_of_bge_m3(opener: Any, tmp_path: Path) -> None:
    """Compared with what the paper's code does: the heaviest relu(linear) of each token, and scaled linear states."""
    folder, layers = m3(tmp_path)
    ours = opener(folder, quantization="fp32")
    assert ours.info().detail["embedding_types"] == ["dense", "sparse", "colbert"]
    found = await ask(ours, TEXTS, embedding_type=["colbert", "dense", "sparse", "dense"])
    model = transformers.AutoModel.from_pretrained(folder).eval()
    dense_, rows, tokens = [], np.zeros((len(TEXTS), 40), dtype=np.float32), []
    for row, text in enumerate(TEXTS):
        ids = tokenizer().encode(text).ids
        with torch.no_grad():
            states = model(torch.tensor([ids])).last_hidden_state[0]
        dense_.append(torch.nn.functional.normalize(states[0], dim=0).numpy())
        for one, weight in zip(
            ids, torch.relu(states @ layers["sparse.weight"].T + layers["sparse.bias"])[:, 0], strict=True
        ):
            if one not in (0, 1, 2, 3):
                rows[row, one] = max(rows[row, one], float(weight))
        linear = states[1:] @ layers["colbert.weight"].T + layers["colbert.bias"]
        tokens.append(torch.nn.functional.normalize(linear, dim=1).numpy())
    assert far(np.frombuffer(found.data, "<f4").reshape(-1, 32), np.stack(dense_)) < BOUND
    assert far(full(found.sparse, 40), rows) < BOUND
    assert (rows > 0).any()
    assert max(far(one, other) for one, other in zip(matrices(found.colbert), tokens, strict=True)) < BOUND


async def test_kinds_of_many_requests_share_batches(opener: Any, tmp_path: Path) -> None:
    import asyncio

    ours = opener(m3(tmp_path)[0], quantization="fp32")
    kinds: list[Any] = ["dense", "sparse", "colbert", ["sparse", "colbert"]] * 3
    together = await asyncio.gather(*(ask(ours, TEXTS, embedding_type=kind) for kind in kinds))
    for kind, found in zip(kinds[:4], together[:4], strict=True):
        alone = await ask(ours, TEXTS, embedding_type=kind)
        assert (alone.sparse is None) is (found.sparse is None)
        assert (alone.colbert is None) is (found.colbert is None)
        assert (
            far(np.frombuffer(found.data, "<f4"), np.frombuffer(alone.data, "<f4")) < BOUND
            if alone.data
            else not found.data
        )


async def test_pickled_layers_are_not_read(opener: Any, tmp_path: Path) -> None:
    folder, layers = m3(tmp_path)
    for name in ("sparse", "colbert"):
        (folder / f"{name}_linear.safetensors").unlink()
        torch.save({"weight": layers[f"{name}.weight"]}, folder / f"{name}_linear.pt")
    ours = opener(folder, quantization="fp32")
    assert (await vectors(ours, "river")).shape == (1, 32)
    with pytest.raises(InvalidRequest, match=r"sparse_linear\.pt is a pickle.*sparse_linear\.safetensors") as caught:
        await ask(ours, "river", embedding_type="sparse")
    assert caught.value.param == "embedding_type"


@pytest.mark.parametrize("kind", ["sparse", "colbert", "late_interaction", ["dense", "sparse"]])
async def test_what_a_model_has_not_is_told(opener: Any, tmp_path: Path, kind: Any) -> None:
    dense(tmp_path, models.Pooling(32))
    ours = opener(tmp_path / "st")
    with pytest.raises(InvalidRequest, match=r"makes no (sparse|colbert) vectors; send embedding_type: 'dense'"):
        await ask(ours, "river", embedding_type=kind)


async def test_a_sparse_model_gives_no_dense_vectors(opener: Any, tmp_path: Path) -> None:
    first = models.Transformer(str(masked(tmp_path / "base", "bert")), transformer_task="fill-mask")
    saved(sentence_transformers.SparseEncoder(modules=[first, sparse.SpladePooling()]), tmp_path / "st")
    with pytest.raises(InvalidRequest, match="makes no dense vectors; send embedding_type: 'sparse'"):
        await ask(opener(tmp_path / "st"), "river")


@pytest.mark.parametrize(
    ("place", "change", "said"),
    [
        ("1_SpladePooling/config.json", {"pooling_strategy": "mean"}, "pooling_strategy 'mean' is not known"),
        ("1_SpladePooling/config.json", {"activation_function": "gelu"}, "activation_function 'gelu' is not known"),
    ],
)
def test_what_is_wrong_with_a_sparse_folder(opener: Any, tmp_path: Path, place: str, change: Any, said: str) -> None:
    first = models.Transformer(str(masked(tmp_path / "base", "bert")), transformer_task="fill-mask")
    saved(sentence_transformers.SparseEncoder(modules=[first, sparse.SpladePooling()]), tmp_path / "st")
    file = tmp_path / "st" / place
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(LoadFailed, match=said):
        opener(tmp_path / "st")


def test_what_is_wrong_with_a_late_folder(opener: Any, tmp_path: Path) -> None:
    multi(tmp_path, late.MultiVectorMask(), query_expansion={"strategy": "fixed", "length": 9})
    folder, bert = tmp_path / "st", json.loads((tmp_path / "st/sentence_bert_config.json").read_text())
    for change, said in (
        ({"query_expansion": {"strategy": "more", "length": 9}}, "strategy 'more' with length 9 is not known"),
        ({"query_expansion": {"strategy": "min", "length": 9, "token": "<none>"}}, "filled up with mask tokens"),
    ):
        (folder / "sentence_bert_config.json").write_text(json.dumps(bert | change))
        with pytest.raises(LoadFailed, match=said):
            opener(folder)
    (folder / "sentence_bert_config.json").write_text(json.dumps(bert))
    (folder / "tokenizer_config.json").write_text(json.dumps({**CONFIG, "mask_token": None, "eos_token": None}))
    with pytest.raises(LoadFailed, match=r"tokenizer_config\.json names none"):
        opener(folder)
    shutil.rmtree(folder / "1_Dense")
    with pytest.raises(LoadFailed, match="'1_Dense', which is not there"):
        opener(folder)
