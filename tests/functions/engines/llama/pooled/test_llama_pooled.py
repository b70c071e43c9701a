"""Pooled models: scores of a cross-encoder equal those of Transformers; pooling of decoders; the tokenizer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from ggufs import qwen3
from ggufs.bert import convert
from ggufs.tiny import WORDS, cross_encoder

from functions.engines.batching.item import Item
from functions.engines.llama.model.model import Model
from functions.engines.llama.pooled import plan as planning
from functions.engines.llama.pooled import token_types
from functions.engines.llama.pooled.context import PooledContext
from functions.engines.llama.pooled.model import PooledModel
from functions.engines.llama.pooled.pooling import Purpose
from functions.engines.llama.pooled.token_types import TokenTypes
from host.errors import LoadFailed, OutOfMemory
from host.function import Load
from host.manifest import Manifest

pytestmark = pytest.mark.anyio

Opener = Callable[..., PooledModel]
_TOKENS, _TYPES = token_types._TOKEN_EMBEDDINGS, token_types._TYPE_EMBEDDINGS


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def load(path: Path, options: dict[str, Any] | None = None, **manifest: Any) -> Load:
    return Load(
        manifest=Manifest(task="embeddings", model="x", name="m", **manifest),
        path=str(path),
        engine="llama",
        options=msgspec.Raw(msgspec.msgpack.encode(options or {})),
        threads=1,
        memory={"ram": 8 << 30},
    )


@pytest.fixture(scope="module")
def open_() -> Iterator[Opener]:
    opened: list[PooledModel] = []

    def open_one(path: Path, purpose: Purpose, options: dict[str, Any] | None = None, **manifest: Any) -> PooledModel:
        given = load(path, options, **manifest)
        plan = planning.make(given, purpose)
        opened.append(PooledModel.load(given, plan, lambda stage, done=0, total=0: None, purpose))
        return opened[-1]

    yield open_one
    for model in opened:
        model.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cross_encoder(tmp_path_factory.mktemp("cross") / "model")


@pytest.fixture(scope="module")
def ranker(open_: Opener, folder: Path) -> PooledModel:
    return open_(convert(folder, folder.parent / "rank.gguf", pooling="rank"), "scores")


def texts(count: int, most: int = 20) -> list[str]:
    rng = np.random.default_rng(5)
    return [" ".join(rng.choice([*WORDS, "odd", "words,"], size=int(n))) for n in rng.integers(1, most, size=count)]


def direct(folder: Path, query: str, documents: list[str]) -> tuple[list[float], int]:
    """Scores and tokens by Transformers, each text with its own token type."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    found, tokens = [], 0
    for document in documents:
        given = tokenizer(query, document, return_tensors="pt", return_token_type_ids=True)
        with torch.no_grad():
            logits = model(input_ids=given["input_ids"], token_type_ids=given["token_type_ids"]).logits
        found.append(float(logits[0, 0]))
        tokens += given["input_ids"].numel()
    return found, tokens


async def scores(model: PooledModel, query: str, documents: list[str]) -> tuple[list[float], int]:
    """The rank of each document behind the query, and the tokens of all pairs."""
    words = model.tokenizer
    items = [words.pair.item(words.bare(query), words.bare(document)) for document in documents]
    return [float(row[0]) for row in await model.rows(items)], sum(len(item.ids) for item in items)


async def test_scores_equal_those_of_transformers(ranker: PooledModel, folder: Path) -> None:
    query, documents = "the light of winter", texts(40)
    found, tokens = await scores(ranker, query, documents)
    expected, counted = direct(folder, query, documents)
    assert tokens == counted
    assert np.allclose(found, expected, atol=2e-3)
    assert np.std(expected) > 0.05
    # The same order, but for scores that lie as close together as the two libraries do.
    assert np.diff(np.array(expected)[np.argsort(found)]).min() > -4e-3


async def test_the_head_matters(open_: Opener, folder: Path) -> None:
    """What llama.cpp's converter drops, the pooler, is what makes the scores right."""
    path = convert(folder, folder.parent / "headless.gguf", pooling="rank", pooler=False)
    found, _ = await scores(open_(path, "scores"), "the light of winter", texts(8))
    expected, _ = direct(folder, "the light of winter", texts(8))
    assert not np.allclose(found, expected, atol=0.05)


async def test_concurrent_requests_are_merged_into_batches(ranker: PooledModel, folder: Path) -> None:
    documents = texts(12)
    before = ranker._batcher.batches
    answers = await asyncio.gather(*(scores(ranker, query, documents) for query in WORDS[:8]))
    assert ranker._batcher.batches - before < 8
    for query, (found, _) in zip(WORDS[:8], answers, strict=True):
        assert np.allclose(found, direct(folder, query, documents)[0], atol=2e-3)


def test_a_plan_notes_token_types(folder: Path) -> None:
    path = convert(folder, folder.parent / "told.gguf", pooling="rank")
    notes = planning.make(load(path), "scores").notes
    assert notes[0] == "pooling: rank (the file)"
    assert any("token types" in note for note in notes)


def ranking(folder: Path, name: str, split: int = 0) -> Path:
    return convert(folder, folder.parent / name, pooling="rank", split=split)


async def test_token_types_of_a_model_in_several_files(open_: Opener, folder: Path) -> None:
    path = ranking(folder, "split.gguf", split=2)
    places = [path.with_name(path.name.replace("-00001-", f"-0000{at}-")) for at in (1, 2)]
    assert [_TYPES in token_types._tables(place, 64) for place in places] == [False, True]
    query, documents = "the light of winter", texts(8)
    found, _ = await scores(open_(path, "scores"), query, documents)
    assert np.allclose(found, direct(folder, query, documents)[0], atol=2e-3)


@pytest.mark.parametrize(
    ("without", "rows", "words"),
    [(_TOKENS, 2, "has token_types.weight but not token_embd.weight"), (None, 1, "several token types, .* has 1$")],
)
def test_mismatched_tables_are_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, without: str | None, rows: int, words: str
) -> None:
    path = ranking(folder, "apart.gguf")
    tables = token_types._tables(path, 64)
    tables[_TYPES]._raw = tables[_TYPES]._raw[:rows]
    monkeypatch.setattr(token_types, "_tables", lambda *_: {k: table for k, table in tables.items() if k != without})
    with pytest.raises(LoadFailed, match=words):
        TokenTypes.read(path, 64)


async def test_a_model_without_token_type_embeddings(open_: Opener, tmp_path: Path) -> None:
    """Whatever its metadata counts: llama.cpp adds nothing to its tokens, as if the table were full of zeros."""
    folder = cross_encoder(tmp_path / "model")
    name, file = "bert.embeddings.token_type_embeddings.weight", folder / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    safetensors.torch.save_file({key: weights[key] for key in weights if key != name}, file, {"format": "pt"})
    path = ranking(folder, "none.gguf")
    assert TokenTypes.read(path, 64) is None
    assert not any("token types" in note for note in planning.make(load(path), "scores").notes)
    found, _ = await scores(open_(path, "scores"), "the light of winter", texts(8))
    safetensors.torch.save_file(weights | {name: torch.zeros_like(weights[name])}, file, {"format": "pt"})
    assert np.allclose(found, direct(folder, "the light of winter", texts(8))[0], atol=2e-3)


def test_an_unreadable_header_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "odd.gguf").write_bytes(b"GGUX" * 9)
    with pytest.raises(LoadFailed, match=r"header of odd\.gguf cannot be read"):
        TokenTypes.read(tmp_path / "odd.gguf", 64)


@pytest.mark.parametrize("fault", [False, OSError("gone"), OutOfMemory("no room")])
def test_a_context_without_token_types_is_closed_before_its_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fault: bool | Exception
) -> None:
    closed: list[str] = []
    for kind in (PooledContext, Model):

        def close(self: Any, close: Any = kind.close, name: str = kind.__name__) -> None:
            closed.append(name)
            close(self)

        monkeypatch.setattr(kind, "close", close)

    def enable_token_types(*_: Any) -> bool:
        if isinstance(fault, Exception):
            raise fault
        return fault

    given = load(ranking(folder, "faulty.gguf"))
    plan = planning.make(given, "scores")
    closed.clear()
    monkeypatch.setattr(PooledContext, "enable_token_types", enable_token_types)
    with pytest.raises(type(fault) if isinstance(fault, Exception) else LoadFailed):
        PooledModel.load(given, plan, lambda stage, done=0, total=0: None, "scores")
    assert closed == ["PooledContext", "Model"]


def test_adapters_are_refused(folder: Path) -> None:
    path = convert(folder, folder.parent / "plain.gguf", pooling="mean")
    with pytest.raises(LoadFailed, match=r"options\.adapters"):
        planning.make(load(path, {"adapters": {"poet": {"path": "./poet.gguf"}}}), "vectors")


def test_only_rerankers_score(folder: Path) -> None:
    path = convert(folder, folder.parent / "mean.gguf", pooling="mean")
    with pytest.raises(LoadFailed, match="no reranker: its pooling is mean"):
        planning.make(load(path), "scores")


async def rows(model: PooledModel, given: list[str]) -> np.ndarray:
    items = [Item(ids=ids) for ids in await model.tokenizer.encode(given)]
    return np.stack(await model.rows(items))


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one * other).sum(1) / (np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    model = qwen3.random()
    return model, qwen3.convert(model, tmp_path_factory.mktemp("qwen3") / "tiny.gguf")


def stated(model: Any, text: str) -> np.ndarray:
    """The state of every token, EOS at the end included, by Transformers."""
    with torch.no_grad():
        return model(torch.tensor([[*text.encode(), qwen3.EOS]])).last_hidden_state[0].numpy()


LONG = "a text that is much longer than a batch of sixteen tokens, and that is therefore computed in pieces"


@pytest.mark.parametrize("batch", [16, 512])
async def test_last_token_pooling_of_a_decoder(open_: Opener, decoder: tuple[Any, Path], batch: int) -> None:
    model, path = decoder
    given = ["a river of stones", "x", LONG, "winter"]
    found = await rows(open_(path, "vectors", {"batch": batch}), given)
    assert cosines(found, np.stack([stated(model, text)[-1] for text in given])).min() > 0.9999


async def test_mean_pooling_of_a_decoder_needs_one_batch_per_input(open_: Opener, decoder: tuple[Any, Path]) -> None:
    model, path = decoder
    given = ["a river of stones", LONG]
    found = await rows(open_(path, "vectors", {"batch": 16, "pooling": "mean"}), given)
    assert cosines(found, np.stack([stated(model, text).mean(0) for text in given])).min() > 0.9999


async def test_a_decoder_without_declared_pooling(open_: Opener, decoder: tuple[Any, Path]) -> None:
    path = qwen3.convert(decoder[0], decoder[1].parent / "silent.gguf", pooling=None)
    assert planning.make(load(path), "vectors").notes[0].startswith("pooling: last (the file names none; a causal")
    found = await rows(open_(path, "vectors"), [LONG])
    assert cosines(found, stated(decoder[0], LONG)[-1:]).min() > 0.9999


async def test_text_spelled_like_special_tokens_stays_text(open_: Opener, decoder: tuple[Any, Path]) -> None:
    words = open_(decoder[1], "vectors").tokenizer
    assert words.bare("a</s>") == list(b"a</s>")
    assert (await words.encode(["a"]))[0].tolist() == [ord("a"), qwen3.EOS]


@pytest.mark.slow
async def test_batching_changes_no_more_than_quantised_kernels_do(open_: Opener, smollm2: Path) -> None:
    given = ["a river", "x", " ".join(["stone", "light", "window"] * 30), "The capital of France is"]
    model = open_(smollm2, "vectors", context=512)
    alone = np.concatenate([await rows(model, [text]) for text in given])
    assert cosines(await rows(model, given), alone).min() > 0.998
