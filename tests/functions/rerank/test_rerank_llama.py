"""GGUF files that rank, language models asked for yes or no, and embedders, against Transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from ggufs import qwen3
from ggufs.bert import convert
from ggufs.tiny import WORDS, cross_encoder
from rerankers import Opener, ask

from host.errors import InputTooLong, LoadFailed

pytestmark = pytest.mark.anyio

QUERY = "the light of winter"
EXACT = {"cache_type_k": "f32", "cache_type_v": "f32", "flash_attention": "off"}
TEMPLATE = "<a>Find: {query}\nIn: {document}<b>so"


def documents(count: int = 20, most: int = 20) -> list[str]:
    rng = np.random.default_rng(5)
    return [" ".join(rng.choice([*WORDS, "odd", "words,"], size=int(n))) for n in rng.integers(1, most, size=count)]


def direct(folder: Path, query: str, texts: list[str], *, segments: bool = True) -> np.ndarray:
    """Logits by Transformers."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    found = []
    with torch.no_grad():
        for text in texts:
            given = tokenizer(query, text, return_tensors="pt", return_token_type_ids=True)
            types = given["token_type_ids"] if segments else torch.zeros_like(given["input_ids"])
            found.append(model(input_ids=given["input_ids"], token_type_ids=types).logits[0].numpy())
    return np.stack(found)


async def test_a_cross_encoder(opener: Opener, tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "model")
    instance = opener(convert(folder, tmp_path / "rank.gguf", pooling="rank"), engine="llama")
    expected = direct(folder, QUERY, documents())[:, 0]
    raw = await ask(instance, QUERY, documents(), raw_scores=True)
    found = await ask(instance, QUERY, documents())
    assert np.allclose(raw.scores, expected, atol=2e-3)
    assert np.allclose(found.scores, 1 / (1 + np.exp(-expected)), atol=1e-3)
    # The same order, but for scores that lie as close together as the two libraries do.
    assert np.diff(expected[np.argsort(found.scores)]).min() > -4e-3
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    assert found.usage.prompt_tokens == sum(len(tokenizer(QUERY, text)["input_ids"]) for text in documents())
    assert instance.info().detail["method"] == "cross_encoder"


@pytest.mark.parametrize(("kind", "close"), [("f32", 2e-3), ("f16", 5e-3), ("q8_0", 0.05)])
async def test_segments_tell_query_and_document_apart(opener: Opener, tmp_path: Path, kind: str, close: float) -> None:
    """llama.cpp adds the first segment's vector to every token."""
    folder = cross_encoder(tmp_path / "model")
    expected = direct(folder, QUERY, documents())[:, 0]
    apart = np.abs(expected - direct(folder, QUERY, documents(), segments=False)[:, 0])
    instance = opener(convert(folder, tmp_path / "rank.gguf", kind, pooling="rank"), engine="llama")
    found = await ask(instance, QUERY, documents(), raw_scores=True)
    assert np.abs(np.array(found.scores) - expected).max() < close < apart.max()


async def test_a_model_of_one_segment(opener: Opener, tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    name = "bert.embeddings.token_type_embeddings.weight"
    weights[name] = weights[name][:1].clone()
    (folder / "config.json").write_text(json.dumps(config | {"type_vocab_size": 1}))
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    instance = opener(convert(folder, tmp_path / "rank.gguf", pooling="rank"), engine="llama")
    expected = direct(folder, QUERY, documents(), segments=False)[:, 0]
    assert np.allclose((await ask(instance, QUERY, documents(), raw_scores=True)).scores, expected, atol=2e-3)


async def test_too_long_pairs(opener: Opener, tmp_path: Path) -> None:
    folder = cross_encoder(tmp_path / "model")
    instance = opener(convert(folder, tmp_path / "rank.gguf", pooling="rank"), engine="llama")
    long = " ".join(["river"] * 200)
    with pytest.raises(InputTooLong, match=r"documents\[1\] is too large: with the query it has 207 tokens"):
        await ask(instance, QUERY, ["stone", long])
    cut = await ask(instance, QUERY, ["stone", long], truncate=True)
    shorter = await ask(instance, QUERY, ["stone", " ".join(["river"] * 89)])
    assert np.allclose(cut.scores, shorter.scores, atol=1e-3) and cut.truncated == [1]


@pytest.fixture(scope="module")
def tiny() -> Any:
    return qwen3.random()


def states(model: Any, texts: list[list[int]]) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack([model(torch.tensor([ids])).last_hidden_state[0, -1] for ids in texts])


def prompted(query: str, texts: list[str]) -> list[list[int]]:
    """`TEMPLATE` with its special tokens; texts that spell them are bytes like any other."""
    return [[258, *f"Find: {query}\nIn: {text}".encode(), 259, *b"so"] for text in texts]


@pytest.mark.parametrize(("labels", "yes"), [(["yes", "no"], 0), (["no", "yes"], 1)])
async def test_qwen3_rerankers_with_a_head(
    opener: Opener, tmp_path: Path, tiny: Any, labels: list[str], yes: int
) -> None:
    """As llama.cpp's converter makes them of Qwen3-Reranker: two rows of the head for words, and the prompt."""
    torch.manual_seed(2)
    head = torch.randn(2, 64) * 0.3
    file = qwen3.convert(tiny, tmp_path / "q.gguf", "rank", head=head, labels=labels, template=TEMPLATE)
    instance = opener(file, EXACT, engine="llama")
    texts = [*documents(8), "a </s> b <b> c"]
    logits = states(tiny, prompted(QUERY, texts)) @ head.T
    shares = torch.softmax(logits, 1)[:, yes]
    assert (await ask(instance, QUERY, texts)).scores == pytest.approx(shares.tolist(), abs=1e-4)
    raw = await ask(instance, QUERY, texts, raw_scores=True)
    assert raw.scores == pytest.approx((logits[:, yes] - logits[:, 1 - yes]).tolist(), abs=1e-3)
    assert shares.std() > 0.03


async def test_a_language_model_is_asked(opener: Opener, tmp_path: Path, tiny: Any) -> None:
    torch.manual_seed(3)
    output = torch.randn(260, 64) * 0.3
    file = qwen3.convert(tiny, tmp_path / "lm.gguf", None, output=output)
    with pytest.raises(LoadFailed, match=r"set options\.prompt"):
        opener(file, engine="llama")
    with pytest.raises(LoadFailed, match=r"options\.yes_word must be one token"):
        opener(file, {"prompt": TEMPLATE}, engine="llama")
    instance = opener(file, EXACT | {"prompt": TEMPLATE, "yes_word": "y", "no_word": "n"}, engine="llama")
    texts = documents(30)
    logits = states(tiny, prompted(QUERY, texts)) @ output.T
    expected = (logits[:, ord("y")] - logits[:, ord("n")]).tolist()
    raw = await ask(instance, QUERY, texts, raw_scores=True)
    assert raw.scores == pytest.approx(expected, abs=2e-3)
    assert np.std(expected) > 0.1
    found = await ask(instance, QUERY, texts)
    assert found.scores == pytest.approx((1 / (1 + np.exp(-np.array(expected)))).tolist(), abs=1e-3)
    assert instance.info().detail["method"] == "yes_no"
    assert raw.usage.cached_tokens == 29 * len(f"_Find: {QUERY}\nIn: ")


async def test_an_embedder_needs_cosine_named(opener: Opener, tmp_path: Path, tiny: Any) -> None:
    file = qwen3.convert(tiny, tmp_path / "e.gguf", "last")
    with pytest.raises(LoadFailed, match=r"options\.method: cosine"):
        opener(file, engine="llama")
    instance = opener(file, {"method": "cosine", "prompts": {"query": "Q: "}}, engine="llama")
    texts = documents(8)
    first, *rows = states(tiny, [[*text.encode(), qwen3.EOS] for text in [f"Q: {QUERY}", *texts]])
    expected = [torch.cosine_similarity(first, row, dim=0).item() for row in rows]
    assert (await ask(instance, QUERY, texts)).scores == pytest.approx(expected, abs=1e-3)


async def test_a_file_without_a_head_that_is_told_to_cross(opener: Opener, tmp_path: Path) -> None:
    path = convert(cross_encoder(tmp_path / "model"), tmp_path / "mean.gguf", pooling="mean")
    with pytest.raises(LoadFailed, match="no reranker: its pooling is mean"):
        opener(path, {"method": "cross_encoder"}, engine="llama")
