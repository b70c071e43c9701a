"""What a request may say, and how it is told what is wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from functions.embeddings import output_format
from functions.embeddings.api import INPUTS_MAX, EmbeddingsRequest
from functions.embeddings.content_parts import Image
from functions.embeddings.inputs import check, parse_inputs
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
    check(EmbeddingsRequest(input=given))
    assert parse_inputs(given) == found


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
        ([[1], {"text": "a"}], "input[1]", "must be a list of token ids.*got an object"),
        ([{"text": "a"}, 1], "input[1]", "got a number"),
        (["a", {"text": ""}], "input[1].text", "empty text"),
        (["a", {"text": 1}], "input[1].text", "must be a text"),
        ([{}], "input[0]", "has neither: expected"),
        ([{"text": None, "image": None}], "input[0]", "has neither"),
        ({"text": "a", "image": "AAAA"}, "input[0]", "both a text and an image: send two inputs"),
        ([{"type": "video", "text": "a"}], "input[0].type", "expected 'text' or 'image_url'"),
        ([{"type": "text", "image": "AAAA"}], "input[0].image", "has the type 'text' and the field 'image'"),
        ([{"type": "image_url", "text": "a"}], "input[0].text", "has the type 'image_url' and the field 'text'"),
        ([{"image": 7}], "input[0].image", "a data URI or base64"),
        ([{"image": ""}], "input[0].image", "a data URI or base64"),
        ([{"image": "data:image/png,abc"}], "input[0].image", "data URI in base64"),
        ([{"image": "data:image/png;base64"}], "input[0].image", "data URI in base64"),
        (["a", {"image": "https://example.com/a.png"}], "input[1].image", "not fetched: send a data URI"),
        ([{"image": "file:///etc/passwd"}], "input[0].image", "not fetched"),
        ([{"type": "image_url", "image_url": {"url": "http://a/b"}}], "input[0].image_url.url", "not fetched"),
        ([{"type": "image_url", "image_url": {"href": "x"}}], "input[0].image_url.url", "a data URI or base64"),
        ([True], "input[0]", "got true or false"),
        (["x"] * (INPUTS_MAX + 1), "input", "has 2049 items, at most 2048"),
    ],
)
def test_what_is_wrong_is_named(given: Any, param: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        check(EmbeddingsRequest(input=given))
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"text": "a"}, ["a"]),
        (["a", {"text": "b"}, {"type": "input_text", "text": "c"}], ["a", "b", "c"]),
        ([{"type": "text", "text": "a", "image_url": None, "unknown": 1}], ["a"]),
        ([{"image": "AAAA"}], [Image("AAAA", "input[0].image")]),
        (["a", {"image": "data:image/png;base64,AAAA"}], ["a", Image("AAAA", "input[1].image")]),
        ([{"type": "input_image", "image_url": "DATA:image/jpeg;BASE64,AA=="}], [Image("AA==", "input[0].image_url")]),
        (
            [{"type": "image_url", "image_url": {"url": "data:;base64,AAAA", "detail": "low"}}],
            [Image("AAAA", "input[0].image_url.url")],
        ),
    ],
)
def test_objects_are_texts_or_images(given: Any, found: Any) -> None:
    check(EmbeddingsRequest(input=given))
    assert parse_inputs(given) == found


@pytest.mark.parametrize(
    ("data", "said"), [("A", "not base64"), ("!!!!", "not base64"), ("é", "not base64"), ("", "empty")]
)
def test_images_that_are_not_base64(data: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        Image(data, "input[3].image").decoded()
    assert caught.value.param == "input[3].image"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (None, ("dense",)),
        ("dense", ("dense",)),
        ("float", ("dense",)),
        ("base64", ("dense",)),
        ("sparse", ("sparse",)),
        ("colbert", ("colbert",)),
        ("late_interaction", ("colbert",)),
        (["sparse"], ("sparse",)),
        (["colbert", "dense", "late_interaction"], ("colbert", "dense")),
    ],
)
def test_kinds(asked: Any, found: Any) -> None:
    request = EmbeddingsRequest(model="m", input="a", embedding_type=asked)
    check(request)
    assert output_format.embedding_types(request) == found
    assert output_format.is_object(request) is isinstance(asked, list)


@pytest.mark.parametrize(
    ("encoding", "kind", "found"),
    [
        (None, None, False),
        ("float", None, False),
        ("base64", None, True),
        (None, "base64", True),
        (None, "float", False),
        ("float", "base64", False),
        ("base64", "float", True),
        ("base64", "sparse", True),
    ],
)
def test_formats(encoding: Any, kind: Any, found: bool) -> None:
    assert (
        output_format.is_base64(EmbeddingsRequest(model="m", input="a", encoding_format=encoding, embedding_type=kind))
        is found
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": -1}, "dimensions"),
        ({"input_type": "question"}, "input_type"),
        ({"embedding_type": "binary"}, "embedding_type"),
        ({"embedding_type": ["dense", "int8"]}, "embedding_type[1]"),
        ({"embedding_type": ["float"]}, "embedding_type[0]"),
        ({"embedding_type": []}, "embedding_type"),
        ({"embedding_type": "sparse", "dimensions": 8}, "dimensions"),
        ({"input_type": "query", "prompt_name": "query"}, "prompt_name"),
    ],
)
def test_fields_are_checked(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(EmbeddingsRequest(model="m", input="a", **fields))
    assert caught.value.param == param


@pytest.mark.parametrize("field", [field for field in EmbeddingsRequest.__struct_fields__ if field != "input"])
def test_null_is_absent(field: str) -> None:
    body = msgspec.json.encode({"input": "a", field: None, "unknown": {"x": 1}})
    assert msgspec.json.decode(body, type=EmbeddingsRequest) == EmbeddingsRequest(input="a")


def test_requests_cross_a_wire() -> None:
    for given in ("a", ["a"], [1, 2], [[1], [2]], {"text": "a"}, ["a", {"image": "AAAA"}]):
        request = EmbeddingsRequest(model="m", input=given, dimensions=3)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=EmbeddingsRequest) == request
