"""What a request may say, and how it is told what is wrong; redaction by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from functions.ner.api import TEXTS_MAX, Entity, NerRequest
from functions.ner.inputs import check, texts_of
from functions.ner.offsets import told
from functions.ner.redaction import Redaction, redacted
from host.errors import InvalidRequest


@pytest.mark.parametrize("field", ["input", "texts"])
@pytest.mark.parametrize("given", ["a", "", " ", ["a", ""], ["x"] * TEXTS_MAX])
def test_texts(field: str, given: Any) -> None:
    check(NerRequest(model="m", **{field: given}))
    assert texts_of(given) == ([given] if isinstance(given, str) else given)


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
        ({"input": "a", "aggregation_strategy": "none"}, "aggregation_strategy", "would cut words"),
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


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("[{label}]", ["[PER]", "[PER]", "[LOC]", "[PER]"]),
        ("<{label}>", ["<PER>", "<PER>", "<LOC>", "<PER>"]),
        ("[{label}_{n}]", ["[PER_1]", "[PER_2]", "[LOC_1]", "[PER_1]"]),
        ("*", ["***", "****", "***", "***"]),
        ("█", ["███", "████", "███", "███"]),
        ("removed", ["removed"] * 4),
        ("{{label}", ["{PER", "{PER", "{LOC", "{PER"]),
        (r"\1{n}", [r"\11", r"\12", r"\11", r"\11"]),
    ],
)
def test_replacements(template: str, found: list[str]) -> None:
    redaction = Redaction(template)
    entities = [("PER", "Ann"), ("PER", "Bert"), ("LOC", "Ann"), ("PER", "ANN")]
    assert [redaction.replacement(*entity) for entity in entities] == found


def test_what_is_written_otherwise_has_the_same_number() -> None:
    redaction = Redaction("{n}")
    texts = ["José Smith", "Jose\u0301  SMITH", "José\nSmith", "Jose Smith"]
    assert [redaction.replacement("PER", text) for text in texts] == ["1", "1", "1", "2"]


def entity(text: str, start: int, end: int, replacement: str | None = None) -> Entity:
    return Entity(text=text[start:end], label="A", start=start, end=end, score=1.0, replacement=replacement)


def test_all_else_is_left_as_it_is() -> None:
    text = "\ufeffa\r\n\tAnn😀 \u200bBert\u0000 "
    found = [entity(text, 5, 8, "[A]"), entity(text, 11, 15, "")]
    assert redacted(text, found) == "\ufeffa\r\n\t[A]😀 \u200b\u0000 "
    assert redacted(text, []) == text
    assert redacted("Ann", [entity("Ann", 0, 3, "[A]")]) == "[A]"


@pytest.mark.parametrize(("unit", "places"), [("codepoint", (3, 6)), ("utf16", (4, 8)), ("byte", (7, 15))])
def test_units(unit: str, places: tuple[int, int]) -> None:
    text = "😀é é😀x"
    (found,) = told(text, [entity(text, 3, 6)], unit)
    assert (found.start, found.end) == (places[0], places[1] if unit != "byte" else 14)
    assert found.text == "é😀x"
