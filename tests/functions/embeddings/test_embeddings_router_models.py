"""Models that treat queries and documents differently (Router), against sentence-transformers on the same folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_transformers
import torch
from sentence_transformers.sentence_transformer import modules as models
from sentence_transformers.sparse_encoder import modules as sparse
from stfolders import TEXTS, ask, base, far, full, masked, saved, tokenizer, vectors
from tinymodels import given
from transformers import AutoTokenizer

from functions.embeddings.api import EmbeddingsRequest
from functions.embeddings.transformers import TransformersEmbeddings
from host.direct import open_function
from host.errors import InvalidRequest, LoadFailed
from host.manifest import Manifest

pytestmark = pytest.mark.anyio

BOUND = 1e-4


def encoder(folder: Path, kind: str = "bert") -> Any:
    return models.Transformer(str(base(folder, kind)))


def two(folder: Path, *after: Any, router: dict[str, Any] | None = None, **said: Any) -> Any:
    """Save and return a model whose queries go through a table and whose documents through an encoder."""
    torch.manual_seed(8)
    query = [models.StaticEmbedding(tokenizer(), embedding_weights=torch.randn(21, 8))]
    document = [encoder(folder / "d", "modernbert"), models.Pooling(32, "cls"), models.Dense(32, 8)]
    made = models.Router.for_query_document(query, document, **(router or {}))
    return saved(sentence_transformers.SentenceTransformer(modules=[made, *after], device="cpu", **said), folder / "st")


async def same(ours: Any, theirs: Any) -> None:
    """Assert that queries, documents and what is said to be neither have the vectors of sentence-transformers."""
    assert far(await vectors(ours, TEXTS, input_type="query"), theirs.encode_query(TEXTS)) < BOUND
    assert far(await vectors(ours, TEXTS, input_type="document"), theirs.encode_document(TEXTS)) < BOUND
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND


@pytest.mark.parametrize("default", ["query", "document", None])
async def test_a_table_for_queries_and_an_encoder_for_documents(
    opener: Any, tmp_path: Path, default: str | None
) -> None:
    theirs = two(tmp_path, models.Normalize(), router={"default_route": default}, prompts={"query": "stone "})
    assert far(theirs.encode_query(TEXTS), theirs.encode_document(TEXTS)) > 0.1
    ours = opener(tmp_path / "st")
    await same(ours, theirs)
    detail = ours.info().detail
    assert detail["ways"] == {"query": "query", "document": "document", "default": default or "query"}
    assert {name: told["architecture"] for name, told in detail["routes"].items()} == {
        "query": "StaticEmbedding",
        "document": "ModernBertModel",
    }
    assert (detail["dimension"], detail["normalized"]) == (8, True)
    assert "architecture" not in detail


async def test_the_name_of_a_prompt_says_what_a_text_is(opener: Any, tmp_path: Path) -> None:
    """Sentence-transformers puts the prompt there and goes the default way; nobody can mean that."""
    theirs = two(tmp_path, prompts={"query": "stone ", "sts": "paper "})
    ours = opener(tmp_path / "st")
    assert far(await vectors(ours, TEXTS, prompt_name="query"), theirs.encode_query(TEXTS)) < BOUND
    assert far(await vectors(ours, TEXTS, prompt_name="sts"), theirs.encode(TEXTS, prompt_name="sts")) < BOUND


@pytest.mark.parametrize("kind", ["bert", "distilbert", "qwen3"])
async def test_two_encoders(opener: Any, tmp_path: Path, kind: str) -> None:
    query = [encoder(tmp_path / "q", kind), models.Pooling(32, "lasttoken"), models.Dense(32, 8)]
    document = [encoder(tmp_path / "d", "xlm-roberta"), models.Pooling(32), models.Dense(32, 8), models.Normalize()]
    router = models.Router.for_query_document(query, document)
    theirs = saved(sentence_transformers.SentenceTransformer(modules=[router], device="cpu"), tmp_path / "st")
    ours = opener(tmp_path / "st")
    await same(ours, theirs)
    plan = TransformersEmbeddings.plan(given(tmp_path / "st"))
    assert any(note.startswith("query: pooling: last") for note in plan.notes)
    assert any(note.startswith("document: pooling: mean") for note in plan.notes)


async def test_heads_that_differ_behind_one_encoder(opener: Any, tmp_path: Path) -> None:
    """As `Asym` of older releases: the Router stands behind pooling, and its folder has a file named otherwise."""
    router = models.Router({"query": [models.Dense(32, 8)], "document": [models.Dense(32, 8)]}, allow_empty_key=False)
    made = sentence_transformers.SentenceTransformer(
        modules=[encoder(tmp_path / "b"), models.Pooling(32), router], device="cpu"
    )
    made.save_pretrained(str(tmp_path / "st"), create_model_card=False)
    folder = tmp_path / "st"
    inner = folder / "2_Router"
    (inner / "router_config.json").rename(inner / "config.json")
    inner.rename(folder / "2_Asym")
    listed = json.loads((folder / "modules.json").read_text())
    listed[2] |= {"path": "2_Asym", "type": "sentence_transformers.models.Asym"}
    (folder / "modules.json").write_text(json.dumps(listed))
    ours = opener(folder)
    texts = TEXTS[:3]
    found = {}
    for task in ("query", "document"):
        features = made[1](made[0](made.tokenize(texts)))
        expected = router.sub_modules[task](features)["sentence_embedding"].detach().numpy()
        found[task] = await vectors(ours, texts, input_type=task)
        assert far(found[task], expected) < BOUND
    assert far(found["query"], found["document"]) > 0.1
    with pytest.raises(InvalidRequest, match="send input_type: 'query' or 'document'") as caught:
        await vectors(ours, texts)
    assert caught.value.param == "input_type"


MAPPINGS: list[tuple[dict[Any, str], dict[str, Any]]] = [
    ({("query", "text"): "a", (None, "text"): "b"}, {}),
    ({("document", None): "a", (None, None): "b"}, {}),
    ({(None, "text"): "b", (None, ("image", "text")): "a"}, {}),
    ({("query", "text"): "b"}, {"default_route": "a"}),
]


@pytest.mark.parametrize(("mappings", "more"), MAPPINGS)
async def test_routes_by_task_and_modality(opener: Any, tmp_path: Path, mappings: Any, more: Any) -> None:
    torch.manual_seed(1)
    tables = {name: [models.StaticEmbedding(tokenizer(), embedding_weights=torch.randn(21, 8))] for name in "ab"}
    router = models.Router(tables, route_mappings=mappings, **more)
    theirs = saved(sentence_transformers.SentenceTransformer(modules=[router], device="cpu"), tmp_path / "st")
    ours = opener(tmp_path / "st")
    for fields, encode in (
        ({}, theirs.encode),
        ({"input_type": "query"}, theirs.encode_query),
        ({"input_type": "document"}, theirs.encode_document),
    ):
        try:
            expected = encode(TEXTS)
        except ValueError:
            with pytest.raises(InvalidRequest, match="has no route for 'document': send input_type: 'query'"):
                await vectors(ours, TEXTS, **fields)
        else:
            assert far(await vectors(ours, TEXTS, **fields), expected) < BOUND


async def test_sparse_queries_without_an_encoder(opener: Any, tmp_path: Path) -> None:
    """Weights of words for queries and SPLADE for documents, as OpenSearch's models are laid out."""
    first = models.Transformer(str(masked(tmp_path / "base", "bert")), transformer_task="fill-mask")
    words = AutoTokenizer.from_pretrained(str(tmp_path / "base"))
    torch.manual_seed(9)
    router = models.Router.for_query_document(
        [sparse.SparseStaticEmbedding(words, torch.rand(len(words)))], [first, sparse.SpladePooling()]
    )
    theirs = saved(sentence_transformers.SparseEncoder(modules=[router], device="cpu"), tmp_path / "st")
    ours = opener(tmp_path / "st")
    for kind, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        found = await ask(ours, TEXTS, embedding_type="sparse", input_type=kind)
        expected = encode(TEXTS, convert_to_sparse_tensor=False).numpy()
        assert far(full(found.sparse, expected.shape[1]), expected) < BOUND
    with pytest.raises(InvalidRequest, match="makes no dense vectors; send embedding_type: 'sparse'"):
        await ask(ours, TEXTS)


async def test_what_the_machine_does_best_is_close(opener: Any, tmp_path: Path) -> None:
    theirs = two(tmp_path, models.Normalize())
    ours = opener(tmp_path / "st", quantization=None)
    for kind, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        assert (await vectors(ours, TEXTS, input_type=kind) * encode(TEXTS)).sum(1).min() > 0.99


def test_the_plan_counts_all_routes(tmp_path: Path) -> None:
    two(tmp_path)
    whole = TransformersEmbeddings.plan(given(tmp_path / "st"))
    folder = tmp_path / "st" / "document_0_Transformer"
    alone = TransformersEmbeddings.plan(given(folder))
    assert whole.detail["weights"] == alone.detail["weights"] + 21 * 8 * 4
    assert whole.bytes["ram"] > alone.bytes["ram"]


def test_a_way_that_fails_leaves_no_thread(opener: Any, tmp_path: Path) -> None:
    import threading

    two(tmp_path)
    (tmp_path / "st" / "document_0_Transformer" / "tokenizer.json").write_text("{}")
    before = {thread.ident for thread in threading.enumerate()}
    with pytest.raises(LoadFailed, match="tokenizer cannot be read"):
        opener(tmp_path / "st")
    assert not [thread for thread in threading.enumerate() if thread.ident not in before and thread.name == "compute"]


def edit(folder: Path, change: Any) -> None:
    file = folder / "router_config.json"
    said = json.loads(file.read_text())
    change(said)
    file.write_text(json.dumps(said))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda said: said.pop("types"), "expected `types` and `structure`"),
        (lambda said: said["structure"]["query"].append("x"), "'x' of the route 'query' is not among its types"),
        (lambda said: said["types"].update(query_0_StaticEmbedding="a.b"), "router_config.json: a.b is not served"),
        (
            lambda said: said["types"].update(query_0_StaticEmbedding="sentence_transformers.models.Router"),
            "a Router within a Router",
        ),
        (lambda said: said["parameters"].update(default_route="x"), "the route 'x' is not there"),
        (lambda said: said["parameters"].update(route_mappings={"query": "query"}), "not a pair of task and modality"),
        (lambda said: said["parameters"].update(route_mappings={"(None, 'text')": "y"}), "the route 'y' is not there"),
        (
            lambda said: said.update(
                structure={"image": said["structure"]["query"]},
                parameters={"default_route": None, "allow_empty_key": False},
            ),
            "no route is for texts; there are image",
        ),
    ],
)
def test_what_is_wrong_with_a_router_is_reported(opener: Any, tmp_path: Path, change: Any, said: str) -> None:
    two(tmp_path)
    edit(tmp_path / "st", change)
    with pytest.raises(LoadFailed, match=said):
        opener(tmp_path / "st")


def test_routes_of_different_kinds_and_several_routers_are_refused(opener: Any, tmp_path: Path) -> None:
    two(tmp_path)
    listed = json.loads((tmp_path / "st" / "modules.json").read_text())
    (tmp_path / "st" / "modules.json").write_text(json.dumps([*listed, *listed]))
    with pytest.raises(LoadFailed, match="several Routers"):
        opener(tmp_path / "st")
    (tmp_path / "st" / "modules.json").write_text(json.dumps(listed))
    edit(
        tmp_path / "st",
        lambda said: said["types"].update(
            query_0_StaticEmbedding="sentence_transformers.sparse_encoder.modules.SparseStaticEmbedding"
        ),
    )
    with pytest.raises(LoadFailed, match=r"vectors of different kinds \(query: sparse; document: dense\)"):
        opener(tmp_path / "st")
    shutil.rmtree(tmp_path / "st" / "query_0_StaticEmbedding")
    with pytest.raises(LoadFailed, match="'query_0_StaticEmbedding', which is not there"):
        opener(tmp_path / "st")


async def test_dimensions_of_routes(opener: Any, tmp_path: Path) -> None:
    theirs = two(tmp_path, models.Normalize())
    ours = opener(tmp_path / "st", {"matryoshka": [4]})
    cut = theirs.encode_query(TEXTS, truncate_dim=4, normalize_embeddings=True)
    assert far(await vectors(ours, TEXTS, input_type="query", dimensions=4), np.asarray(cut)) < BOUND


async def test_through_the_host(tmp_path: Path) -> None:
    """The folder has neither config.json nor weights at its top; a worker loads it all the same."""
    theirs = two(tmp_path)
    manifest = Manifest(task="embeddings", model=str(tmp_path / "st"), name="m", quantization="fp32")
    async with open_function(manifest) as opened:
        found = await opened.call(EmbeddingsRequest(model="m", input=TEXTS, input_type="query"))
        assert far(np.frombuffer(found.data, "<f4").reshape(-1, 8), theirs.encode_query(TEXTS)) < BOUND
        status = opened.status()
        assert status.engine == "transformers"
        assert status.plan is not None
        assert any(note.startswith("query: a table of 21 tokens") for note in status.plan.notes)
