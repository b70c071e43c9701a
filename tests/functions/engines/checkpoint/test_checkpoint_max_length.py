"""How many tokens a model takes, by its files and the manifest's `context`."""

from __future__ import annotations

from typing import Any

import pytest

from functions.engines.checkpoint import max_length
from host.errors import LoadFailed, ManifestError


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"model_type": "bert", "max_position_embeddings": 512}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "xlm-roberta", "max_position_embeddings": 8194, "pad_token_id": 1}, 8192),
        ({"model_type": "roberta", "max_position_embeddings": 514}, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "gpt2", "n_positions": 1024}, 1024),
        ({"model_type": "t5", "n_positions": 512}, None),
        ({}, None),
    ],
)
def test_positions(config: dict[str, Any], tokens: int | None) -> None:
    assert max_length.positions(config) == tokens


@pytest.mark.parametrize(
    ("tokenizer", "context", "other", "tokens", "whose"),
    [
        ({}, "auto", None, 512, "positions"),
        ({"model_max_length": 128}, "auto", None, 128, "tokenizer_config.json"),
        ({"model_max_length": 10**30}, "auto", None, 512, "positions"),
        ({}, "auto", 256, 256, "own files"),
        ({}, 64, 256, 64, "manifest"),
        ({}, 512, None, 512, "manifest"),
    ],
)
def test_longest(tokenizer: dict[str, Any], context: Any, other: int | None, tokens: int, whose: str) -> None:
    config = {"model_type": "bert", "max_position_embeddings": 512}
    found, why = max_length.longest(config, tokenizer, context, other)
    assert found == tokens
    assert whose in why


@pytest.mark.parametrize(
    ("config", "tokenizer", "other", "said"),
    [
        ({"max_position_embeddings": 512}, {}, None, r"512 tokens \(the model's positions, max_position_embeddings in"),
        ({"model_type": "roberta", "max_position_embeddings": 514}, {}, None, "512 tokens"),
        ({"n_positions": 300}, {}, None, "300 tokens .*n_positions in config.json"),
        ({"max_position_embeddings": 512}, {}, 256, "256 tokens .*max_seq_length in sentence_bert_config.json"),
        ({"max_position_embeddings": 512}, {"model_max_length": 128}, None, "128 tokens .*in tokenizer_config.json"),
        ({"model_type": "t5"}, {"model_max_length": 512}, None, "512 tokens .*tokenizer_config.json"),
    ],
)
def test_a_context_beyond_the_model_is_refused(
    config: dict[str, Any], tokenizer: dict[str, Any], other: int | None, said: str
) -> None:
    with pytest.raises(ManifestError, match=f"context is 513, but the model takes at most {said}") as caught:
        max_length.longest(config, tokenizer, 513, other)
    assert (caught.value.key, caught.value.param) == ("context", "context")


def test_no_bound_at_all_is_refused() -> None:
    with pytest.raises(LoadFailed, match="set `context`"):
        max_length.longest({"model_type": "t5"}, {}, "auto", None)
    assert max_length.longest({"model_type": "t5"}, {}, 300, None)[0] == 300
