"""Ranking by an embedding model: the real MiniLM against sentence-transformers, and prompts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
from rerankers import Opener, ask
from sentence_transformers import SentenceTransformer
from tinymodels import modules, tiny, words_tokenizer

from host.errors import InputTooLong, LoadFailed, NotFinite, UnsupportedParameter

pytestmark = pytest.mark.anyio

QUERY = "How do I keep bread fresh?"
DOCUMENTS = [
    "The river rises in the mountains and flows north.",
    "Store bread in a paper bag at room temperature, and it stays fresh for days.",
    "Trains run every ten minutes during the day.",
    "A loaf keeps longer when it is wrapped in cloth.",
    "Windows should be cleaned in winter, too.",
]


async def test_scores_are_the_cosines_of_sentence_transformers(opener: Opener, minilm: Path) -> None:
    instance = opener(minilm, {"method": "cosine"})
    found = await ask(instance, QUERY, DOCUMENTS)
    model = SentenceTransformer(str(minilm), device="cpu", local_files_only=True)
    vectors = model.encode([QUERY, *DOCUMENTS], normalize_embeddings=True)
    assert np.allclose(found.scores, vectors[1:] @ vectors[0], atol=1e-4)
    assert np.argsort(found.scores)[::-1][:2].tolist() == [1, 3]
    assert (await ask(instance, QUERY, DOCUMENTS, raw_scores=True)).scores == pytest.approx(found.scores, abs=1e-6)
    assert instance.info().detail["method"] == "cosine"


async def test_cosine_is_never_taken_by_itself(opener: Opener, minilm: Path) -> None:
    with pytest.raises(LoadFailed, match=r"modules\.json.*options\.method: cosine"):
        opener(minilm)


async def test_prompts_of_the_files_and_of_the_manifest(opener: Opener, tmp_path: Path) -> None:
    settings = {"prompts": {"query": "river ", "passage": "stone "}}
    files = {"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": {"pooling_mode": "mean"}}
    asked = tiny(tmp_path / "asked", files=files | {"config_sentence_transformers.json": settings})
    bare = tiny(tmp_path / "bare", files=files)
    texts = ["light garden", "winter"]
    expected = await ask(opener(bare, {"method": "cosine"}), "river music", [f"stone {text}" for text in texts])
    found = await ask(opener(asked, {"method": "cosine"}), "music", texts)
    assert found.scores == pytest.approx(expected.scores, abs=1e-5)
    own = opener(bare, {"method": "cosine", "prompts": {"query": "river ", "document": "stone "}})
    assert (await ask(own, "music", texts)).scores == pytest.approx(expected.scores, abs=1e-5)


async def test_too_long(opener: Opener, minilm: Path) -> None:
    instance = opener(minilm, {"method": "cosine"})
    long = "bread " * 400
    with pytest.raises(InputTooLong, match=r"documents\[1\] is too large"):
        await ask(instance, QUERY, ["bread", long])
    assert (await ask(instance, QUERY, ["bread", long], truncate=True)).truncated == [1]
    mixed = "river stone " * 300 + DOCUMENTS[1]
    whole, pieces = [
        await ask(instance, QUERY, [mixed], **way) for way in ({"truncate": True}, {"max_chunks_per_doc": 9})
    ]
    assert pieces.scores[0] > whole.scores[0] + 0.1 and pieces.truncated == []
    with pytest.raises(InputTooLong, match="query is too large") as caught:
        await ask(instance, long, ["bread"], truncate=True)
    assert caught.value.param == "query"


@pytest.mark.parametrize(
    ("query", "document", "place"), [("stone", "garden", "query"), ("music", "garden stone", "documents[1]")]
)
async def test_what_spoils_the_numbers_is_named(
    opener: Opener, tmp_path: Path, query: str, document: str, place: str
) -> None:
    files = {"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": {"pooling_mode": "mean"}}
    folder = tiny(tmp_path, files=files)
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][words_tokenizer().token_to_id("stone")] = float("nan")
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(NotFinite, match="not finite") as caught:
        await ask(opener(folder, {"method": "cosine"}), query, ["light", document, "winter"])
    assert caught.value.param == place and caught.value.message.startswith(f"{place}: ")


async def test_instructions_are_not_for_embedders(opener: Opener, minilm: Path) -> None:
    with pytest.raises(UnsupportedParameter, match="instruction"):
        await ask(opener(minilm, {"method": "cosine"}), QUERY, DOCUMENTS, instruction="find")
