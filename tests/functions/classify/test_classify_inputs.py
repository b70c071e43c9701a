"""What can be seen to be wrong with a request without its model, each with the name of the field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from functions.classify.api import ClassifyRequest, ModerationRequest
from functions.classify.inputs import (
    Pair,
    check,
    check_moderation,
    input_field,
    moderation_texts,
    parse_inputs,
    parse_labels,
)
from host.errors import InvalidRequest
from host.request_checks import item_params


def request(**fields: Any) -> ClassifyRequest:
    """Return the request as it comes over the wire."""
    return msgspec.json.decode(msgspec.json.encode({"model": "m", **fields}), type=ClassifyRequest)


@pytest.mark.parametrize("name", ["input", "texts", "inputs"])
@pytest.mark.parametrize("given", ["a", ["a"], ["a", "b"], ["x"] * 2048])
def test_texts_have_three_names(name: str, given: Any) -> None:
    made = request(**{name: given, "user": 7, "labels": None})
    check(made)
    assert (input_field(made), parse_inputs(given)) == (name, [given] if isinstance(given, str) else given)


@pytest.mark.parametrize("field", ["topk", "threshhold", "candidate_labels", "parameters"])
def test_unknown_fields_are_refused_by_name(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"unknown field `{field}`"):
        request(input="a", **{field: 1})


@pytest.mark.parametrize("name", ["input", "texts", "inputs"])
@pytest.mark.parametrize(
    ("given", "place", "said"),
    [
        ([], "", "is an empty list: send at least one text"),
        ("", "", "is an empty text"),
        (["a", ""], "[1]", "is an empty text"),
        (["a", 3], "[1]", "must be a text, got a number"),
        ([None], "[0]", "must be a text, got null"),
        ([["a", "b", "c"]], "[0]", "is a list of 3: a pair is a list of two texts"),
        ([[]], "[0]", "is a list of 0: a pair is a list of two texts"),
        ([["a", 3]], "[0][1]", "must be a text, got a number"),
        (["a", ["a", ""]], "[1][1]", "is an empty text"),
        ([["a"], [["a"]]], "[1][0]", "must be a text, got a list"),
        ([{}], "[0].text", "must be a text, got null"),
        ([{"text_pair": "b"}], "[0].text", "must be a text, got null"),
        ([{"text": "a", "text_pair": ""}], "[0].text_pair", "is an empty text"),
        ([{"text": "a", "text_pair": ["b"]}], "[0].text_pair", "must be a text, got a list"),
        ([{"text": "a", "textpair": "b"}], "[0].textpair", "is not known: a pair is an object of text and text_pair"),
        ({"text": "a", "label": "b"}, ".label", "is not known: a pair is an object of text and text_pair"),
        ({"text": 4}, ".text", "must be a text, got a number"),
        ([True], "[0]", "must be a text, got true or false"),
        (["a"] * 2049, "", "has 2049 items, at most 2048 are taken at once"),
    ],
)
def test_what_is_wrong_with_texts_names_the_field(name: str, given: Any, place: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(request(**{name: given}))
    assert caught.value.message == f"{name}{place} {said}"
    assert caught.value.param == f"{name}{place}"


@pytest.mark.parametrize("name", ["input", "texts", "inputs"])
@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"text": "a", "text_pair": "b"}, [Pair("a", "b")]),
        ({"text": "a"}, ["a"]),
        ([["a", "b"]], [Pair("a", "b")]),
        ([["a"], ["b"]], ["a", "b"]),
        ([{"text": "a", "text_pair": None}, {"text_pair": "c", "text": "b"}, "d"], ["a", Pair("b", "c"), "d"]),
        (["a", "b"], ["a", "b"]),
    ],
)
def test_pairs_are_objects_or_lists_of_two(name: str, given: Any, found: list[Any]) -> None:
    check(request(**{name: given}))
    assert parse_inputs(given) == found


@pytest.mark.parametrize(
    ("given", "found"), [("a", ["x"]), ({"text": "a"}, ["x"]), (["a"], ["x[0]"]), (["a", "b"], ["x[0]", "x[1]"])]
)
def test_a_list_of_one_is_a_list(given: Any, found: list[str]) -> None:
    assert item_params("x", given) == found


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({}, "input", "input is missing"),
        ({"input": None}, "input", "input is missing"),
        ({"input": "a", "top_k": 0}, "top_k", "at least 1, got 0"),
        ({"input": "a", "max_length": -1}, "max_length", "at least 1, got -1"),
        ({"input": "a", "threshold": 1.01}, "threshold", "from 0 to 1, got 1.01"),
        ({"input": "a", "threshold": -1}, "threshold", "from 0 to 1, got -1"),
        ({"input": "a", "threshold": {"x": 0.5, "y": 2}}, "threshold.y", "from 0 to 1, got 2"),
        ({"input": "a", "windows": "median"}, "windows", "'mean', 'max', 'first' or 'off', got 'median'"),
        ({"input": "a", "function_to_apply": "tanh"}, "function_to_apply", "'sigmoid' or 'none', got 'tanh'"),
        ({"input": "a", "hypothesis_template": "a"}, "hypothesis_template", "must have {}"),
        ({"input": "a", "labels": " , "}, "labels", "labels is an empty list: send at least one label"),
        ({"input": "a", "labels": [None]}, "labels[0]", "must be a text, got null"),
    ],
)
def test_what_is_wrong_with_other_fields(fields: dict[str, Any], param: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        check(request(**fields))
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": "a", "texts": ["b"]}, "texts"),
        ({"texts": "a", "inputs": ["b"]}, "inputs"),
        ({"input": "a", "windows": "max", "truncate": True}, "truncate"),
    ],
)
def test_what_excludes_each_other(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest, match="not both") as caught:
        check(request(**fields))
    assert caught.value.code == "invalid_request"
    assert caught.value.param == param


@pytest.mark.parametrize("fields", [{"threshold": 0}, {"threshold": 1}, {"top_k": 1}, {"windows": "off"}])
def test_what_is_at_the_edge_is_fine(fields: dict[str, Any]) -> None:
    check(request(input="a", **fields))


@pytest.mark.parametrize(
    ("given", "found"), [("a, b ,c", ["a", "b", "c"]), (["a, b"], ["a, b"]), ("one", ["one"]), (None, None)]
)
def test_labels_come_as_a_list_or_with_commas(given: Any, found: Any) -> None:
    made = request(input="a", labels=given)
    check(made)
    assert parse_labels(made) == found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("a", (["a"], False)),
        (["a", "b"], (["a", "b"], False)),
        ([{"type": "text", "text": "a"}], (["a"], True)),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], (["a", "b"], True)),
    ],
)
def test_every_form_of_what_is_moderated(given: Any, found: tuple[list[str], bool]) -> None:
    check_moderation(ModerationRequest(input=given))
    assert moderation_texts(ModerationRequest(input=given)) == found


@pytest.mark.parametrize(
    ("given", "param", "said"),
    [
        ([], "input", "empty list"),
        ("", "input", "empty text"),
        (["a", ""], "input[1]", "empty text"),
        ([3], "input[0]", "must be a text, got a number"),
        ([["a", "b"]], "input[0]", "must be a text, got a list"),
        (
            [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}],
            "input[1]",
            "image, and this model reads text only",
        ),
        (["a", {"type": "text", "text": "b"}], "input[1]", "must be a text, got an object"),
        ([{"type": "image_url", "image_url": {"url": "data:"}}], "input[0]", "image, and this model reads text only"),
        ([{"type": "text", "text": "a"}, "b"], "input[1]", "must be a part like input"),
        ([{"type": "sound"}], "input[0].type", "must be 'text', got 'sound'"),
        ([{"text": "a"}], "input[0].type", "must be 'text', got None"),
        ([{"type": "text", "text": ""}], "input[0].text", "empty text"),
        ([{"type": "text"}], "input[0].text", "must be a text, got null"),
        ([{"type": "text", "text": "a"}] * 2049, "input", "has 2049 items"),
    ],
)
def test_what_is_wrong_with_what_is_moderated(given: Any, param: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        check_moderation(ModerationRequest(input=given))
    assert caught.value.param == param
