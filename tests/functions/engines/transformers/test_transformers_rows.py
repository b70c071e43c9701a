"""Tokenizers with more tokens than the model has embeddings for, under models with a head."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import loads
import pytest
from tinymodels import headed, words_tokenizer

from functions.engines.batching.item import Item
from functions.engines.transformers.classifier import TransformersClassifierModel
from host.errors import InvalidRequest, LoadFailed

pytestmark = pytest.mark.anyio

ROWS = 40
"""Of the tiny models' embeddings; their tokenizer has 16 words."""


def opened(folder: Path, head: Literal["sequence", "token"], **more: Any) -> TransformersClassifierModel:
    load = loads.given({"sequence": "classify", "token": "ner"}[head], folder, **more)
    return TransformersClassifierModel.load(load, TransformersClassifierModel.plan(load), loads.ignore, head)


@pytest.mark.parametrize("head", ["sequence", "token"])
@pytest.mark.parametrize("kind", ["bert", "roberta"])
async def test_a_text_with_such_a_token_is_refused(
    tmp_path: Path, kind: str, head: Literal["sequence", "token"]
) -> None:
    headed(tmp_path, kind, head, ["O", "X"])
    words = words_tokenizer()
    words.add_tokens([f"word{at}" for at in range(30)])
    words.save(str(tmp_path / "tokenizer.json"))
    model = opened(tmp_path, head)
    try:
        (ids,) = await model.tokenizer.encode(["river word23"])
        assert max(ids) == ROWS - 1
        assert len(await model.logits([Item(ids=ids)])) == 1
        for ask in (model.tokenizer.encode, model.tokenizer.pieces):
            with pytest.raises(InvalidRequest, match="the text 'river word24' has the token 'word24'"):
                await ask(["river word24"])
    finally:
        model.close()


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    headed(tmp_path, "bert", "sequence", ["O", "X"], vocab_size=12)
    with pytest.raises(LoadFailed, match="words up to the id 15, but the model's embeddings only 12 rows"):
        opened(tmp_path, "sequence")
