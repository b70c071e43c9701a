"""Ner requests: what they may have, and errors that name the field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from functions.ner.api import TEXTS_MAX, NerRequest
from functions.ner.inputs import check, parse_texts
from host.errors import InvalidRequest


@pytest.mark.parametrize("field", ["input", "texts"])
@pytest.mark.parametrize("given", ["a", "", " ", ["a", ""], ["x"] * TEXTS_MAX])
def test_texts(field: str, given: Any) -> None:
    check(NerRequest(model="m", **{field: given}))
    assert parse_texts(given) == ([given] if isinstance(given, str) else given)


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({}, "input", "input is missing: send a text or a list of texts"),
        ({"input": "a", "texts": "b"}, "texts", "set input or texts, not both"),
        ({"input": []}, "input", "empty list"),
        ({"texts": []}, "texts", "texts is an empty list"),
        ({"input": ["a", None]}, "input[1]", "got null"),
        ({"texts": ["a", 3]}, "texts[1]", "got a number"),
        ({"input": [1, 2]}, "input[0]", "got a number"),
        ({"input": [True]}, "input[0]", "got true or false"),
        ({"input": [["a"]]}, "input[0]", "got a list"),
        ({"input": ["a", {"text": "a"}]}, "input[1]", "got an object"),
        ({"input": [1.5]}, "input[0]", "got a number with a fraction"),
        ({"input": ["x"] * (TEXTS_MAX + 1)}, "input", "has 2049 items, at most 2048"),
        ({"input": "a", "aggregation_strategy": "mean"}, "aggregation_strategy", "'simple', 'first'.*or 'max'"),
        ({"input": "a", "aggregation_strategy": "none"}, "aggregation_strategy", "would split words"),
        ({"input": "a", "threshold": 1.5}, "threshold", "from 0 to 1"),
        ({"input": "a", "threshold": -0.1}, "threshold", "from 0 to 1"),
        ({"input": "a", "threshold": float("nan")}, "threshold", "from 0 to 1"),
        ({"input": "a", "stride": -1}, "stride", "at least 0"),
        ({"input": "a", "max_length": 0}, "max_length", "at least 1"),
        ({"input": "a", "labels": []}, "labels", "leave it out, or name labels"),
        ({"input": "a", "redact": False, "redaction": "x"}, "redaction", "send one of them"),
        ({"input": "a", "offset_unit": "char"}, "offset_unit", "'codepoint', 'utf16' or 'byte'"),
        ({"input": "a", "redaction": ""}, "redaction", "1 to 200 characters"),
        ({"input": "a", "redaction": "x" * 201}, "redaction", "got 201"),
        ({"input": "a", "redaction": "<{lable}>"}, "redaction", "{lable}, which is not known"),
        ({"input": "a", "redaction": "{}"}, "redaction", "{}, which is not known"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        check(NerRequest(model="m", **fields))
    assert caught.value.param == param


@pytest.mark.parametrize(
    "field",
    [field for field in NerRequest.__struct_fields__ if field != "input"],
)
def test_null_is_absent(field: str) -> None:
    body = msgspec.json.encode({"input": "a", field: None})
    assert msgspec.json.decode(body, type=NerRequest) == NerRequest(input="a")


@pytest.mark.parametrize("field", ["redactt", "entities", "Redact", "extra_headers"])
def test_unknown_fields_are_refused_by_name(field: str) -> None:
    body = msgspec.json.encode({"model": "m", "input": "a", field: True})
    with pytest.raises(msgspec.ValidationError, match=f"unknown field `{field}`"):
        msgspec.json.decode(body, type=NerRequest)


def test_model_may_be_left_out_and_user_is_taken() -> None:
    found = msgspec.json.decode(b'{"input": "a", "user": "me"}', type=NerRequest)
    assert (found.model, found.user) == (None, "me")


def test_requests_cross_a_wire() -> None:
    request = NerRequest(model="m", texts=["a", "b"], labels=["PER"], redact=True, threshold=0.5, stride=3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=NerRequest) == request
