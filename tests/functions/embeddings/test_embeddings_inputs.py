"""What a request may say, and how it is told what is wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from functions.embeddings.api import INPUTS_MAX, EmbeddingsRequest
from functions.embeddings.inputs import check, listed
from host.errors import InvalidRequest


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([0], [[0]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        ([" "], [" "]),
        (["x"] * INPUTS_MAX, ["x"] * INPUTS_MAX),
        ([7] * (INPUTS_MAX + 1), [[7] * (INPUTS_MAX + 1)]),
    ],
)
def test_every_form_becomes_a_list(given: Any, found: Any) -> None:
    assert listed(given) == found


@pytest.mark.parametrize(
    ("given", "param", "said"),
    [
        ([], "input", "empty list"),
        ("", "input[0]", "empty text"),
        (["a", ""], "input[1]", "empty text"),
        ([[]], "input[0]", "empty list of token ids"),
        ([[1], []], "input[1]", "empty list of token ids"),
        (["a", 1], "input[1]", "must be a text, like input.0., got a number"),
        (["a", "b", ["c"]], "input[2]", "got a list"),
        (["a", None], "input[1]", "got null"),
        ([1, "a"], "input[1]", "must be a token id.*got a text"),
        ([1, 2, True], "input[2]", "got true or false"),
        ([1, 2.5], "input[1]", "got a number with a fraction"),
        ([[1], "a"], "input[1]", "must be a list of token ids.*got a text"),
        ([[1], [2, "x"]], "input[1][1]", "got a text"),
        ([[1], [2, [3]]], "input[1][1]", "got a list"),
        ([3, -1], "input[1]", "not negative"),
        ([[3], [1, -7]], "input[1][1]", "is -7"),
        ([None], "input[0]", "got null"),
        ([{"text": "a"}], "input[0]", "got an object"),
        ([True], "input[0]", "got true or false"),
        (["x"] * (INPUTS_MAX + 1), "input", "has 2049 items, at most 2048"),
    ],
)
def test_what_is_wrong_is_named(given: Any, param: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        listed(given)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": -1}, "dimensions"),
        ({"input_type": "question"}, "input_type"),
        ({"input_type": "query", "prompt_name": "query"}, "prompt_name"),
    ],
)
def test_fields_are_checked(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(EmbeddingsRequest(model="m", input="a", **fields))
    assert caught.value.param == param


@pytest.mark.parametrize("field", ["encoding_format", "dimensions", "user", "truncate", "prompt_name", "input_type"])
def test_null_is_absent(field: str) -> None:
    body = msgspec.json.encode({"model": "m", "input": "a", field: None, "unknown": {"x": 1}})
    assert msgspec.json.decode(body, type=EmbeddingsRequest) == EmbeddingsRequest(model="m", input="a")


def test_requests_cross_a_wire() -> None:
    for given in ("a", ["a"], [1, 2], [[1], [2]]):
        request = EmbeddingsRequest(model="m", input=given, dimensions=3)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=EmbeddingsRequest) == request
