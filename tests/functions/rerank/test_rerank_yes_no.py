"""Language models asked for yes or no, against Transformers run directly on whole prompts, one by one."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from rerankers import Opener, ask, decoder, qwen_text
from sentence_transformers import CrossEncoder

from functions.rerank.prompt import Prompt
from host.errors import InputTooLong, LoadFailed, UnsupportedParameter

pytestmark = pytest.mark.anyio

QUERY = "where is the river"
DOCUMENTS = [
    "Paris is a letter",
    "light falls on the river in the morning",
    "stone",
    "  two spaces first, and a train of words that goes on: " + "winter music window " * 12,
    "a river",
    "a <|im_end|> that means nothing",
]


def odds(folder: Path, texts: list[str], yes: str = "yes", no: str = "no") -> list[float]:
    """The log of the odds of yes, by Transformers, one text at a time."""
    tokens = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = [tokens.convert_tokens_to_ids(word) for word in (yes, no)]
    found = []
    with torch.no_grad():
        for text in texts:
            last = model(**tokens(text, return_tensors="pt", return_token_type_ids=False)).logits[0, -1]
            found.append((last[ids[0]] - last[ids[1]]).item())
    return found


@pytest.mark.parametrize("kind", ["qwen3", "qwen2"])
async def test_scores_are_those_of_transformers(opener: Opener, tmp_path: Path, kind: str) -> None:
    folder = decoder(tmp_path, kind)
    instance = opener(folder)
    plain = DOCUMENTS[:-1]
    texts = [qwen_text(QUERY, document) for document in plain]
    if kind == "qwen2":
        texts = [text.replace("<think>\n\n</think>\n\n", "") for text in texts]
    expected = odds(folder, texts)
    raw = await ask(instance, QUERY, plain, raw_scores=True)
    found = await ask(instance, QUERY, plain)
    assert raw.scores == pytest.approx(expected, abs=1e-4)
    assert found.scores == pytest.approx([math.exp(x) / (1 + math.exp(x)) for x in expected], abs=1e-4)
    assert max(expected) - min(expected) > 0.01
    assert instance.info().detail["prefix"] == "shared"


async def test_the_start_is_computed_once(opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = decoder(tmp_path)
    instance = opener(folder)
    model = instance._scorer._model
    seen: list[int] = []
    forward = model._decoder.forward
    monkeypatch.setattr(
        model._decoder,
        "forward",
        lambda *args, **given: seen.append(given["input_ids"].numel()) or forward(*args, **given),
    )
    model._word = "cache"
    found = await ask(instance, QUERY, DOCUMENTS[:3] * 40)
    whole = len(transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))(
        qwen_text(QUERY, ""))["input_ids"])  # fmt: skip
    assert seen[0] > 0.8 * whole and sum(size == seen[0] for size in seen) == 1
    assert sum(seen[1:]) < 0.4 * 120 * whole
    assert found.usage.prompt_tokens > 120 * whole * 0.9
    assert found.usage.cached_tokens == 119 * seen[0]


async def test_texts_cannot_pose_as_special_tokens(opener: Opener, tmp_path: Path) -> None:
    folder = decoder(tmp_path)
    (found,) = (await ask(opener(folder), QUERY, DOCUMENTS[-1:], raw_scores=True)).scores
    (posing,) = odds(folder, [qwen_text(QUERY, DOCUMENTS[-1])])
    assert abs(found - posing) > 1e-4
    tokens = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    opener_, closer = qwen_text(QUERY, "\0").split("\0")
    lead = opener_.rpartition("<|im_start|>user")[2]
    plain = opener(folder)._scorer._tokenizer.bare("user" + lead + DOCUMENTS[-1])
    head = tokens(opener_[: opener_.rindex("user" + lead)])["input_ids"]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor([[*head, *plain, *tokens(closer)["input_ids"]]])
    with torch.no_grad():
        last = model(ids).logits[0, -1]
    yes, no = (tokens.convert_tokens_to_ids(word) for word in ("yes", "no"))
    assert found == pytest.approx((last[yes] - last[no]).item(), abs=1e-4)


async def test_many_askers_share_batches(opener: Opener, tmp_path: Path) -> None:
    folder = decoder(tmp_path)
    instance = opener(folder)
    queries = ["where is the river", "what falls", "light", "in the morning", "stone and paper"]
    before = instance._scorer._model._batcher.batches
    together = await asyncio.gather(*(ask(instance, query, DOCUMENTS[:5], raw_scores=True) for query in queries))
    assert instance._scorer._model._batcher.batches - before < 5
    for query, found in zip(queries, together, strict=True):
        expected = odds(folder, [qwen_text(query, document) for document in DOCUMENTS[:5]])
        assert found.scores == pytest.approx(expected, abs=1e-4)


async def test_instructions(opener: Opener, tmp_path: Path) -> None:
    folder = decoder(tmp_path)
    expected = odds(folder, [qwen_text(QUERY, "stone", "find paper")])
    asked = await ask(opener(folder), QUERY, ["stone"], instruction="find paper", raw_scores=True)
    stated = await ask(opener(folder, {"instruction": "find paper"}), QUERY, ["stone"], raw_scores=True)
    assert asked.scores == pytest.approx(expected, abs=1e-4) == stated.scores
    bare = opener(folder, {"prompt": "Query: {query}\nDocument: {document}\nRelevant:"})
    with pytest.raises(UnsupportedParameter, match="no place"):
        await ask(bare, QUERY, ["stone"], instruction="find paper")


async def test_a_prompt_and_answers_of_the_manifest(opener: Opener, tmp_path: Path) -> None:
    folder = decoder(tmp_path, "llama")
    with pytest.raises(LoadFailed, match=r"options\.yes_word must be one token of the model, 'relevant passages' is"):
        opener(folder, {"yes_word": "relevant passages"})
    template = "Query: {query}\nDocument: {document}\nRelevant:"
    instance = opener(folder, {"prompt": template, "yes_word": " light", "no_word": " stone"})
    found = await ask(instance, QUERY, DOCUMENTS[:5], raw_scores=True)
    texts = [f"Query: {QUERY}\nDocument: {document}\nRelevant:" for document in DOCUMENTS[:5]]
    assert found.scores == pytest.approx(odds(folder, texts, "Ġlight", "Ġstone"), abs=1e-4)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("only {query}", "{document} must occur exactly once"),
        ("{document} then {query}", "{query} must come before"),
        ("{query} {document} {query}", "{query} must occur exactly once"),
        ("{query} {document} {instruction}", "{instruction} must come before"),
    ],
)
def test_prompts_that_cannot_be_used(prompt: str, words: str) -> None:
    with pytest.raises(LoadFailed) as caught:
        Prompt(prompt, {}, lambda text: [])
    assert words in caught.value.message and caught.value.param == "options.prompt"


async def test_what_a_query_says_of_places_is_text(opener: Opener, tmp_path: Path) -> None:
    folder = decoder(tmp_path)
    query = "what is {document} and {instruction}"
    found = await ask(opener(folder), query, ["stone"], raw_scores=True)
    assert found.scores == pytest.approx(odds(folder, [qwen_text(query, "stone")]), abs=1e-4)


@pytest.mark.parametrize("kind", ["llama"])
async def test_a_model_whose_prompt_is_not_known(opener: Opener, tmp_path: Path, kind: str) -> None:
    folder = decoder(tmp_path, kind)
    found = json.loads((folder / "tokenizer.json").read_text())
    found["added_tokens"] = [entry for entry in found["added_tokens"] if "im_" not in entry["content"]]
    (folder / "tokenizer.json").write_text(json.dumps(found))
    with pytest.raises(LoadFailed, match=r"set options\.prompt"):
        opener(folder)


@pytest.mark.parametrize("window", [4, None])
async def test_sliding_windows_and_capped_logits(opener: Opener, tmp_path: Path, window: int | None) -> None:
    config = {"sliding_window": window, "final_logit_softcapping": 2.0, "query_pre_attn_scalar": 8}
    folder = decoder(tmp_path, "gemma2", **({key: value for key, value in config.items() if value}))
    instance = opener(folder, {"attention": "eager"})
    texts = [qwen_text(QUERY, document).replace("<think>\n\n</think>\n\n", "") for document in DOCUMENTS[:5]]
    found = await ask(instance, QUERY, DOCUMENTS[:5], raw_scores=True)
    assert found.scores == pytest.approx(odds(folder, texts), abs=1e-4)
    assert instance.info().detail["prefix"] == "repeated"
    assert found.usage.cached_tokens == 0


async def test_logits_that_are_scaled_are_refused(opener: Opener, tmp_path: Path) -> None:
    folder = decoder(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"logits_scaling": 8.0}))
    with pytest.raises(LoadFailed, match="logits_scaling"):
        opener(folder)


async def test_too_long(opener: Opener, tmp_path: Path) -> None:
    folder = decoder(tmp_path)
    instance = opener(folder, context=200)
    long = "river stone light " * 80
    with pytest.raises(InputTooLong, match=r"documents\[1\] is too large") as caught:
        await ask(instance, QUERY, ["stone", long])
    assert caught.value.extra["n_ctx"] == 200
    cut = await ask(instance, QUERY, ["stone", long], truncate=True)
    assert cut.truncated == [1]
    tokens = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    whole = tokens(qwen_text(QUERY, long))["input_ids"]
    tail = tokens(qwen_text("", "").rpartition("<Document>: ")[2])["input_ids"]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        last = model(torch.tensor([[*whole[: 200 - len(tail)], *tail]])).logits[0, -1]
    yes, no = (tokens.convert_tokens_to_ids(word) for word in ("yes", "no"))
    assert cut.scores[1] == pytest.approx(torch.sigmoid(last[yes] - last[no]).item(), abs=1e-4)
    pieces = await ask(instance, QUERY, [long], max_chunks_per_doc=20)
    assert pieces.truncated == [] and pieces.scores[0] >= cut.scores[1] - 1e-6
    with pytest.raises(InputTooLong, match="query is too large"):
        await ask(instance, long, ["stone"], truncate=True)


async def test_answers_of_a_saved_cross_encoder(opener: Opener, tmp_path: Path) -> None:
    """sentence-transformers writes down which tokens it looks at."""
    folder = decoder(tmp_path / "model")
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="<|endoftext|>", model_max_length=500
    )
    words.save_pretrained(folder)
    made: Any = CrossEncoder(str(folder), device="cpu", local_files_only=True)
    made[-1].true_token_id, made[-1].false_token_id = (words.convert_tokens_to_ids(word) for word in ("Ġlight", "Ġon"))
    made.save_pretrained(str(tmp_path / "saved"))
    found = await ask(opener(tmp_path / "saved"), QUERY, DOCUMENTS[:5], raw_scores=True)
    texts = [qwen_text(QUERY, document) for document in DOCUMENTS[:5]]
    assert found.scores == pytest.approx(odds(folder, texts, "Ġlight", "Ġon"), abs=1e-4)


async def test_half_precision_on_request(opener: Opener, tmp_path: Path) -> None:
    folder = decoder(tmp_path)
    instance = opener(folder, quantization="bf16")
    exact = await ask(opener(folder), QUERY, DOCUMENTS)
    found = await ask(instance, QUERY, DOCUMENTS)
    assert instance.info().detail["dtype"] == "bf16"
    assert found.scores == pytest.approx(exact.scores, abs=0.02) and found.scores != exact.scores
