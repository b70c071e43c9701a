"""The real MiniLM, compared with Transformers run directly on the same weights, one text at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import sentence_transformers
import torch
import transformers

from functions.embeddings.api import EmbeddingsRequest, Vectors
from functions.embeddings.transformers import TransformersEmbeddings
from host.errors import InputTooLong, InvalidRequest, NotFinite

pytestmark = pytest.mark.anyio

Opener = Callable[..., TransformersEmbeddings]
WORDS = "the river carries stones from mountains, and winter light falls on every window of our town".split()  # noqa: SIM905


def mixed(count: int, seed: int = 0, most: int = 120) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=int(n))) for n in rng.integers(1, most, size=count)]


def rows(found: Vectors) -> np.ndarray:
    return np.frombuffer(found.data, dtype="<f4").reshape(-1, found.dimension)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


@pytest.fixture(scope="module")
def direct(minilm: Path) -> Callable[[list[str]], tuple[np.ndarray, int]]:
    """Texts to vectors and tokens as the model card does it, with nothing of ours."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.AutoModel.from_pretrained(minilm, dtype=torch.float32).eval()

    def embed(texts: list[str]) -> tuple[np.ndarray, int]:
        found, tokens = [], 0
        for text in texts:
            ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=256)
            with torch.no_grad():
                hidden = model(**ids).last_hidden_state[0].mean(0)
            found.append((hidden / hidden.norm()).numpy())
            tokens += ids["input_ids"].numel()
        return np.stack(found), tokens

    return embed


async def ask(instance: TransformersEmbeddings, given: Any, **fields: Any) -> Vectors:
    return await instance.answer(EmbeddingsRequest(model="m", input=given, **fields))


async def test_vectors_are_those_of_transformers_in_order(instance: TransformersEmbeddings, direct: Any) -> None:
    texts = mixed(24, most=80)
    found = await ask(instance, texts)
    expected, tokens = direct(texts)
    assert cosines(rows(found), expected).min() >= 0.9999
    assert np.abs(rows(found) - expected).max() < 1e-4
    assert found.usage.prompt_tokens == tokens


async def test_vectors_are_those_of_sentence_transformers(opener: Opener, minilm: Path) -> None:
    theirs = sentence_transformers.SentenceTransformer(str(minilm), device="cpu")
    texts = [*mixed(24, seed=5, most=60), "Ünïcödé, 世界 🦜", "MIXED Case and\ttabs\n", "word " * 400]
    found = await ask(opener(minilm, {"truncate": True}), texts)
    assert theirs.max_seq_length == 256
    assert np.abs(rows(found) - theirs.encode(texts)).max() < 1e-4


async def test_bf16_is_close(opener: Opener, minilm: Path, direct: Any) -> None:
    texts = mixed(12, seed=1)
    found = await ask(opener(minilm, quantization="bf16"), texts)
    assert cosines(rows(found), direct(texts)[0]).min() >= 0.999


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
async def test_attention_implementations_agree(opener: Opener, minilm: Path, direct: Any, attention: str) -> None:
    made = opener(minilm, {"attention": attention})
    assert made._routes[""].model._encoder.model.config._attn_implementation == attention
    texts = mixed(6, seed=2)
    assert cosines(rows(await ask(made, texts)), direct(texts)[0]).min() >= 0.9999


async def test_meaning_comes_through(instance: TransformersEmbeddings) -> None:
    texts = ["A man is playing a guitar.", "Someone plays an instrument.", "The stock market fell sharply today."]
    a, b, c = rows(await ask(instance, texts))
    assert a @ b > 0.4 > 0.2 > a @ c


async def test_many_callers_share_batches_and_get_their_own(instance: TransformersEmbeddings, direct: Any) -> None:
    texts = mixed(48, seed=3, most=12)
    before = instance._routes[""].model._batcher.batches
    answers = await asyncio.gather(*(ask(instance, text) for text in texts))
    assert instance._routes[""].model._batcher.batches - before < len(texts)
    assert cosines(np.concatenate([rows(found) for found in answers]), direct(texts)[0]).min() >= 0.9999


async def test_a_long_request_holds_a_short_one_up_for_a_batch_at_most(instance: TransformersEmbeddings) -> None:
    begun = instance._routes[""].model._batcher.batches
    long = asyncio.create_task(ask(instance, mixed(400, seed=4)))
    while instance._routes[""].model._batcher.batches == begun:
        await asyncio.sleep(0.001)
    before = instance._routes[""].model._batcher.batches
    await ask(instance, "hello")
    assert not long.done()
    assert instance._routes[""].model._batcher.batches - before <= 2
    assert len(rows(await long)) == 400


async def test_a_caller_that_leaves_frees_the_thread(instance: TransformersEmbeddings) -> None:
    long = asyncio.create_task(ask(instance, mixed(2000, seed=5)))
    while not len(instance._routes[""].model._batcher._schedule):
        await asyncio.sleep(0.01)
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    assert len(instance._routes[""].model._batcher._schedule) == 0
    assert len(rows(await asyncio.wait_for(ask(instance, "still here"), 60))) == 1


async def test_token_ids_are_the_text_with_and_without_special_tokens(instance: TransformersEmbeddings) -> None:
    text = "winter light"
    bare = instance._tokenizer._tokenizer.bare(text)
    expected = rows(await ask(instance, text))[0]
    for given in (bare, [bare], [[101, *bare, 102]]):
        found = await ask(instance, given)
        assert np.allclose(rows(found)[0], expected, atol=1e-5)
        assert found.usage.prompt_tokens == len(bare) + 2


@pytest.mark.parametrize(("ids", "param"), [([30522], "input[0]"), ([[5], [10**30]], "input[1]")])
async def test_ids_of_another_vocabulary_are_refused(instance: TransformersEmbeddings, ids: Any, param: str) -> None:
    with pytest.raises(InvalidRequest, match="vocabulary ends at 30521") as caught:
        await ask(instance, ids)
    assert caught.value.param == param


async def test_too_long_names_the_input_and_the_numbers(instance: TransformersEmbeddings) -> None:
    with pytest.raises(InputTooLong, match="too large: it has 302 tokens, the model takes 256") as caught:
        await ask(instance, ["a", "b", "c", "river " * 300])
    assert caught.value.param == "input[3]"
    assert caught.value.extra == {"n_prompt_tokens": 302, "n_ctx": 256}


async def test_megabytes_are_refused_or_cut_without_being_tokenised(
    opener: Opener, instance: Any, minilm: Path
) -> None:
    huge = "a b " * 2_000_000
    began = time.process_time()
    with pytest.raises(InputTooLong, match="more than 4096 tokens, the model takes 256"):
        await ask(instance, ["x", huge])
    cut = await ask(instance, huge, truncate=True)
    assert time.process_time() - began < 2
    assert cut.data == (await ask(instance, huge[:4000], truncate=True)).data


async def test_the_longest_that_fits_is_taken(instance: TransformersEmbeddings) -> None:
    assert (await ask(instance, "river " * 254)).usage.prompt_tokens == 256


@pytest.mark.parametrize("whose", ["request", "manifest"])
async def test_cut_as_transformers_cuts(opener: Opener, minilm: Path, direct: Any, whose: str) -> None:
    made = opener(minilm, {"truncate": whose == "manifest"})
    texts = ["river stone " * 300, "short"]
    found = await ask(made, texts, truncate=True if whose == "request" else None)
    assert cosines(rows(found), direct(texts)[0]).min() >= 0.9999
    assert found.usage.prompt_tokens == 256 + 3


async def test_a_request_may_forbid_what_the_manifest_allows(opener: Opener, minilm: Path) -> None:
    with pytest.raises(InputTooLong):
        await ask(opener(minilm, {"truncate": True}), "river " * 300, truncate=False)


async def test_context_of_the_manifest_bounds_inputs(opener: Opener, minilm: Path) -> None:
    made = opener(minilm, context=16)
    assert made.info().context == 16
    with pytest.raises(InputTooLong, match="takes 16"):
        await ask(made, "river " * 15)


@pytest.mark.parametrize(
    ("matryoshka", "dimensions", "said"),
    [
        ("auto", 128, "not trained to be cut"),
        (False, 128, "not trained to be cut"),
        (True, 385, "dimensions is 385, the model's vectors have 384"),
        ([64, 256], 128, "one of 64, 256, 384"),
    ],
)
async def test_dimensions_refused(opener: Opener, minilm: Path, matryoshka: Any, dimensions: int, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        await ask(opener(minilm, {"matryoshka": matryoshka}), "hello", dimensions=dimensions)
    assert caught.value.param == "dimensions"


@pytest.mark.parametrize(("matryoshka", "dimensions"), [(True, 1), (True, 100), ([64, 256], 64), (False, 384)])
async def test_dimensions_cut_and_scale(opener: Opener, minilm: Path, matryoshka: Any, dimensions: int) -> None:
    made = opener(minilm, {"matryoshka": matryoshka})
    whole = rows(await ask(made, mixed(3)))
    cut = rows(await ask(made, mixed(3), dimensions=dimensions))
    assert cut.shape == (3, dimensions)
    assert np.allclose(np.linalg.norm(cut, axis=1), 1, atol=1e-5)
    assert cosines(cut, whole[:, :dimensions]).min() >= 0.9999


async def test_prompts_come_from_the_manifest(opener: Opener, minilm: Path, direct: Any) -> None:
    made = opener(minilm, {"prompts": {"query": "search for: ", "title": "title: "}})
    for fields, before in (({"input_type": "query"}, "search for: "), ({"prompt_name": "title"}, "title: "), ({}, "")):
        found = await ask(made, "winter light", **fields)
        assert cosines(rows(found), direct([f"{before}winter light"])[0]).min() >= 0.9999
    assert np.array_equal(rows(await ask(made, "x", input_type="document")), rows(await ask(made, "x")))
    with pytest.raises(InvalidRequest, match="prompts: query, title") as caught:
        await ask(made, "winter light", prompt_name="nope")
    assert caught.value.param == "prompt_name"


async def test_prompt_before_token_ids(opener: Opener, minilm: Path) -> None:
    made = opener(minilm, {"prompts": {"query": "search for: "}})
    bare = made._tokenizer._tokenizer.bare("winter light")
    as_ids = rows(await ask(made, bare, input_type="query"))
    assert np.allclose(as_ids, rows(await ask(made, "winter light", input_type="query")), atol=1e-5)


async def test_answers_cross_a_wire(instance: TransformersEmbeddings) -> None:
    found = await ask(instance, ["a", "b"])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Vectors) == found


def test_facts_say_what_was_chosen(instance: TransformersEmbeddings) -> None:
    facts = instance.info()
    assert facts.context == 256
    assert facts.capacity >= 64
    expected = {"dimension": 384, "pooling": ["mean"], "normalized": True, "dtype": "fp32", "architecture": "BertModel"}
    assert expected.items() <= facts.detail.items()
    assert any("1_Pooling/config.json" in note for note in instance._routes[""].model.layout.notes)
    msgspec.msgpack.encode(facts)


@pytest.mark.parametrize("letter", ["a", "中"])
async def test_a_huge_word_holds_nobody_up(instance: TransformersEmbeddings, letter: str) -> None:
    huge = letter * 4_000_000
    began = time.process_time()
    with pytest.raises(InputTooLong, match=r"input\[0\] is too large: it has more than 16384 characters"):
        await instance.answer(EmbeddingsRequest(model="m", input=huge))
    cut = await instance.answer(EmbeddingsRequest(model="m", input=huge, truncate=True))
    assert time.process_time() - began < 3
    short = await instance.answer(EmbeddingsRequest(model="m", input=letter * 16_384, truncate=True))
    assert cut.data == short.data


async def test_white_space_is_not_length(instance: TransformersEmbeddings) -> None:
    spaced = await instance.answer(EmbeddingsRequest(model="m", input="a" + " \n" * 100_000 + "river"))
    plain = await instance.answer(EmbeddingsRequest(model="m", input="a river"))
    assert spaced.data == plain.data


async def test_numbers_that_are_not_finite_name_the_input(opener: Opener, minilm: Path) -> None:
    made = opener(minilm)
    tokens = await made._routes[""].model.tokenizer.encode(["poison"])
    with torch.no_grad():
        made._routes[""].model._encoder.model.embeddings.word_embeddings.weight[int(tokens[0][1])] = float("nan")
    with pytest.raises(NotFinite, match=r"input\[2\]: the model gave numbers that are not finite") as caught:
        await made.answer(EmbeddingsRequest(model="m", input=["a", "river", "poison", "stone"]))
    assert (caught.value.param, caught.value.status) == ("input[2]", 502)
    await made.answer(EmbeddingsRequest(model="m", input=["a", "river"]))
