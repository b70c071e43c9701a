"""Other dialects' fields: put into ours, or refused where they would change vectors and are not served."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from functions.embeddings.api import EmbeddingsRequest
from functions.embeddings.inputs import check, input_type
from host.errors import InvalidRequest, UnsupportedParameter


def request(**fields: Any) -> EmbeddingsRequest:
    """Return the request as it comes to a worker: over JSON, then over msgpack."""
    found = msgspec.json.decode(msgspec.json.encode({"input": "a", **fields}), type=EmbeddingsRequest)
    return msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=EmbeddingsRequest)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"output_dimension": 8}, {"dimensions": 8}),
        ({"output_dimension": 8, "dimensions": 8}, {"dimensions": 8}),
        ({"truncation": True}, {"truncate": True}),
        ({"truncation": False}, {"truncate": False}),
        ({"task": "retrieval.query"}, {"input_type": "query"}),
        ({"task": "retrieval.passage"}, {"input_type": "document"}),
        ({"task": "retrieval.passage", "input_type": "document"}, {"input_type": "document"}),
    ],
)
def test_other_names_say_the_same(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    found = request(**theirs)
    check(found)
    assert {name: getattr(found, name) for name in ours} == ours
    assert input_type(found) == input_type(request(**ours))


@pytest.mark.parametrize(
    "fields",
    [
        {"normalized": True},
        {"normalize": True},
        {"output_dtype": "float"},
        {"embedding_types": ["float"]},
        {"truncation_direction": "Right"},
        {"truncation_side": "right"},
        {"late_chunking": False},
        {"return_multivector": False},
        {"user": "me", "priority": 3, "whatever": {}},
    ],
)
def test_what_changes_nothing_is_taken(fields: dict[str, Any]) -> None:
    check(request(**fields))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"output_dtype": "int8"}, "must be 'float'"),
        ({"embedding_types": ["float", "int8"]}, "must be 'float'"),
        ({"task": "text-matching"}, "'retrieval.query' or 'retrieval.passage', got 'text-matching'"),
        ({"task": ""}, "got ''"),
        ({"task": "retrieval.query", "prompt_name": "query"}, "not both"),
        ({"normalized": False}, "must be true"),
        ({"normalize": False}, "must be true"),
        ({"truncation_direction": "left"}, "must be 'right'"),
        ({"truncation_side": "left"}, "must be 'right'"),
        ({"late_chunking": True}, "not served"),
        ({"return_multivector": True}, "embedding_type: 'colbert'"),
        ({"prompt": "Find: "}, "prompt_name"),
        ({"max_length": 0}, "not served"),
        ({"max_tokens": 7}, "not served"),
        ({"truncate_prompt_tokens": -1}, "not served"),
    ],
)
def test_what_would_change_vectors_is_not_ignored(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedParameter, match=said) as caught:
        check(request(**fields))
    assert caught.value.param == next(iter(fields))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"output_dimension": 8, "dimensions": 4}, "output_dimension"),
        ({"truncation": True, "truncate": False}, "truncation"),
        ({"task": "retrieval.query", "input_type": "document"}, "task"),
        ({"output_dimension": 0}, "output_dimension"),
        ({"output_dimension": 8, "embedding_type": "sparse"}, "output_dimension"),
    ],
)
def test_contradictions_name_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(request(**fields))
    assert caught.value.param == param
