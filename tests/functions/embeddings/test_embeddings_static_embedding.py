"""Models without an encoder: a table's rows or weights for tokens, against sentence-transformers on the same folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import sentence_transformers
import torch
from sentence_transformers.sentence_transformer import modules as models
from sentence_transformers.sparse_encoder import modules as sparse
from stfolders import SPECIAL, TEXTS, ask, base, far, saved, tokenizer, vectors
from tinymodels import WORDS, given
from transformers import AutoTokenizer

from functions.embeddings.transformers import TransformersEmbeddings
from functions.engines.checkpoint.folder import Folder
from functions.engines.checkpoint.sentence import layout
from functions.engines.transformers.sentence.model import SentenceModel
from functions.engines.transformers.sentence.static_embedding import UNBOUNDED
from host.errors import InputTooLong, InvalidRequest, LoadFailed, ManifestError

pytestmark = pytest.mark.anyio

BOUND = 1e-4
ROWS = len(SPECIAL) + len(WORDS) + 5


def static(folder: Path, *after: Any, truncated: int | None = None, **said: Any) -> Any:
    """Save and return a model of a table of 8 numbers for each token, and what follows it."""
    words = tokenizer()
    if truncated is not None:
        words.enable_truncation(truncated)
    torch.manual_seed(2)
    table = models.StaticEmbedding(words, embedding_weights=torch.randn(ROWS, 8))
    made = sentence_transformers.SentenceTransformer(modules=[table, *after], device="cpu", **said)
    return saved(made, folder)


@pytest.mark.parametrize("after", [(), (models.Normalize(),), (models.Dense(8, 4), models.Normalize())])
async def test_the_mean_of_rows(opener: Any, tmp_path: Path, after: Any) -> None:
    theirs = static(tmp_path, *after, prompts={"query": "stone light ", "document": ""})
    ours = opener(tmp_path)
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND
    assert far(await vectors(ours, TEXTS, input_type="query"), theirs.encode_query(TEXTS)) < BOUND
    detail = ours.info().detail
    assert (detail["dimension"], detail["normalized"]) == (4 if len(after) == 2 else 8, len(after) > 0)
    assert (detail["architecture"], detail["dtype"], detail["rows"]) == ("StaticEmbedding", "fp32", ROWS)


async def test_no_special_tokens_are_counted(opener: Any, tmp_path: Path) -> None:
    static(tmp_path)
    ours = opener(tmp_path)
    found = await ask(ours, ["river stone", "river"])
    assert found.usage.prompt_tokens == 3
    rows = safetensors.torch.load_file(tmp_path / "model.safetensors")["embedding.weight"].numpy()
    assert far(await vectors(ours, "river"), rows[[4]]) < 1e-6
    assert far(await vectors(ours, [[4, 5]]), rows[[4, 5]].mean(0, keepdims=True)) < 1e-6


async def test_many_texts_in_many_batches(opener: Any, tmp_path: Path) -> None:
    theirs = static(tmp_path, models.Normalize())
    texts = [" ".join(WORDS[at % 12 :: 1 + at % 3]) for at in range(500)]
    texts = [text or "river" for text in texts]
    ours = opener(tmp_path, {"batch_tokens": 64})
    assert far(await vectors(ours, texts), theirs.encode(texts)) < BOUND


@pytest.mark.parametrize("more", [(), ("mapping",), ("weights",), ("mapping", "weights")])
async def test_tables_of_model2vec(opener: Any, tmp_path: Path, more: tuple[str, ...]) -> None:
    """It names the tensor otherwise, lets tokens share rows and weighs them; and it may keep rows in fp16."""
    static(tmp_path, models.Normalize())
    torch.manual_seed(4)
    rows = 6 if "mapping" in more else ROWS
    tensors = {"embeddings": torch.randn(rows, 8, dtype=torch.float16)}
    extra = {"mapping": torch.randint(rows, (ROWS,)), "weights": torch.rand(ROWS, dtype=torch.float64)}
    tensors |= {name: extra[name] for name in more}
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    theirs[0].embedding.float()
    assert far(await vectors(opener(tmp_path), TEXTS), theirs.encode(TEXTS)) < BOUND


async def test_lengths(opener: Any, tmp_path: Path) -> None:
    """Without a bound a text may be of any length; with one it is cut where sentence-transformers cuts it."""
    static(tmp_path / "free")
    ours = opener(tmp_path / "free")
    assert ours.info().context == UNBOUNDED
    found = await ask(ours, "river " * 5000)
    assert found.usage.prompt_tokens == 5000
    assert opener(tmp_path / "free", context=9).info().context == 9
    theirs = static(tmp_path / "cut", truncated=7)
    ours = opener(tmp_path / "cut", {"truncate": True})
    assert ours.info().context == 7
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND
    with pytest.raises(InputTooLong, match="the model takes 7"):
        await vectors(ours, TEXTS, truncate=False)
    with pytest.raises(ManifestError, match=r"context is 8, but the model takes at most 7 tokens \(tokenizer\.json\)"):
        opener(tmp_path / "cut", context=8)


async def test_matryoshka_and_texts_of_nothing(opener: Any, tmp_path: Path) -> None:
    theirs = static(tmp_path, truncate_dim=4)
    ours = opener(tmp_path)
    assert far(await vectors(ours, TEXTS), theirs.encode(TEXTS)) < BOUND
    assert (await vectors(ours, TEXTS, dimensions=8)).shape == (len(TEXTS), 8)
    with pytest.raises(InvalidRequest, match=r"input\[1\] has no tokens for this model"):
        await vectors(ours, ["river", "  "])
    with pytest.raises(InvalidRequest, match="makes no sparse vectors"):
        await ask(ours, "river", embedding_type="sparse")


def test_the_plan_counts_the_table_as_it_will_be(tmp_path: Path) -> None:
    static(tmp_path)
    plan = TransformersEmbeddings.plan(given(tmp_path))
    assert plan.detail["weights"] == ROWS * 8 * 4
    tensors = {"embeddings": torch.randn(2, 8), "mapping": torch.zeros(ROWS, dtype=torch.int64)}
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    assert TransformersEmbeddings.plan(given(tmp_path)).detail["weights"] == ROWS * 8 * 4


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"embedding.weight": torch.zeros(3, 8)}, "has 21 tokens, but the table only 3 rows"),
        ({"embedding.weight": torch.zeros(ROWS)}, r"embedding\.weight of shape \(21,\) is no table"),
        ({"other": torch.zeros(ROWS, 8)}, r"has no embedding\.weight and no embeddings"),
        (
            {"embeddings": torch.zeros(3, 8), "mapping": torch.full((ROWS,), 3)},
            "mapping names rows that are not there",
        ),
        ({"embeddings": torch.zeros(ROWS, 8), "weights": torch.ones(3)}, "weights are 3, for 21 tokens"),
    ],
)
def test_what_is_wrong_with_a_table_is_reported(opener: Any, tmp_path: Path, tensors: Any, said: str) -> None:
    static(tmp_path)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(LoadFailed, match=said):
        opener(tmp_path)


def test_a_table_in_several_files_is_refused(tmp_path: Path) -> None:
    static(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "model-1.safetensors")
    safetensors.torch.save_file({"more": torch.zeros(2)}, tmp_path / "model-2.safetensors")
    names = {"embedding.weight": "model-1.safetensors", "more": "model-2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    with pytest.raises(LoadFailed, match="a table of tokens in 2 files is not served"):
        TransformersEmbeddings.plan(given(tmp_path))


def test_pooling_after_a_table_is_refused(opener: Any, tmp_path: Path) -> None:
    static(tmp_path)
    listed = json.loads((tmp_path / "modules.json").read_text())
    listed.append({"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(LoadFailed, match="Pooling is not served in this place"):
        opener(tmp_path)


async def test_numbers_that_are_not_finite_are_an_error(opener: Any, tmp_path: Path) -> None:
    static(tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    tensors["embedding.weight"][4] = float("nan")
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    ours = opener(tmp_path)
    with pytest.raises(Exception, match="not finite"):
        await vectors(ours, "river")
    assert np.isfinite(await vectors(ours, "stone")).all()


def weighed(folder: Path, **said: Any) -> Any:
    """Save and return a sparse encoder that knows a weight for each token and no more."""
    words = AutoTokenizer.from_pretrained(str(base(folder / "base")))
    torch.manual_seed(6)
    weight = torch.rand(len(words))
    weight[5] = 0
    table = sparse.SparseStaticEmbedding(words, weight)
    return saved(sentence_transformers.SparseEncoder(modules=[table], device="cpu", **said), folder / "st")


@pytest.mark.parametrize("most", [None, 2])
async def test_weights_of_words(opener: Any, tmp_path: Path, most: int | None) -> None:
    theirs = weighed(tmp_path, max_active_dims=most, prompts={"query": "music "})
    ours = opener(tmp_path / "st")
    for kind, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        expected = encode(TEXTS, convert_to_sparse_tensor=False).numpy()
        found = (await ask(ours, TEXTS, embedding_type="sparse", input_type=kind)).sparse
        assert found is not None
        rows = np.zeros_like(expected)
        ids, values = np.frombuffer(found.indices, "<i4"), np.frombuffer(found.values, "<f4")
        rows[np.repeat(np.arange(len(TEXTS)), found.counts), ids] = values
        assert far(rows, expected) < BOUND
        assert (values != 0).all()
        assert most is None or max(found.counts) <= most
    assert ours.info().context == 60
    assert ours.info().detail["embedding_types"] == ["sparse"]


def test_other_tasks_say_that_they_take_no_table(tmp_path: Path) -> None:
    static(tmp_path)
    with pytest.raises(LoadFailed, match=r"without an encoder \(StaticEmbedding\) is served as embeddings only"):
        SentenceModel.plan(given(tmp_path), layout.read(Folder(tmp_path)))
