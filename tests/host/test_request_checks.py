"""Checks that requests of all functions share."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from host import request_checks
from host.errors import InvalidRequest


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("a", "a text"), (1, "a number"), (1.5, "a number with a fraction"), (True, "true or false"), (None, "null"),
        ([], "a list"), ({}, "an object"), (b"", "bytes"),
    ],
)  # fmt: skip
def test_json_types_have_their_names(value: Any, name: str):
    assert request_checks.json_type(value) == name


@pytest.mark.parametrize(
    ("call", "param", "message"),
    [
        (lambda: request_checks.check_text(1, "x"), "x", "x must be a text, got a number"),
        (lambda: request_checks.check_text("", "x[3]"), "x[3]", "x[3] is an empty text"),
        (lambda: request_checks.check_count([], "x", 2), "x", "x is an empty list: send at least one text"),
        (lambda: request_checks.check_count([], "x", 2, "label"), "x", "x is an empty list: send at least one label"),
        (lambda: request_checks.check_count("abc", "x", 2), "x", "x has 3 items, at most 2 are taken at once"),
        (lambda: request_checks.check_choice("c", "x", ["a", "b"]), "x", "x must be 'a' or 'b', got 'c'"),
        (lambda: request_checks.check_choice("c", "x", ["a"], "; so"), "x", "x must be 'a', got 'c'; so"),
        (lambda: request_checks.check_range(0, "x", 1), "x", "x must be at least 1, got 0"),
        (lambda: request_checks.check_range(1.5, "x", 0, 1), "x", "x must be from 0 to 1, got 1.5"),
        (lambda: request_checks.check_range(math.nan, "x", 0, 1), "x", "x must be from 0 to 1, got nan"),
        (lambda: request_checks.check_range(-(10**12), "x", 0), "x", "x must be at least 0, got -1000000000000"),
        (lambda: request_checks.check_exclusive(SimpleNamespace(a=1, b=2), "a", "b"), "b", "set a or b, not both"),
        (lambda: request_checks.set_field(SimpleNamespace(a=None, b=None), ["a", "b"]), "a",
         "a is missing: send a text or a list of texts"),
        (lambda: request_checks.set_field(SimpleNamespace(a="", b="x"), ["a", "b"]), "b", "set a or b, not both"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(call: Any, param: str, message: str):
    with pytest.raises(InvalidRequest) as caught:
        call()
    assert (caught.value.param, caught.value.message) == (param, message)


def test_what_is_right_passes():
    request_checks.check_text("a", "x")
    request_checks.check_count(["a", "b"], "x", 2)
    request_checks.check_choice("a", "x", ["a", "b"])
    request_checks.check_choice(None, "x", ["a"])
    for number in (None, 0, 1, 0.5):
        request_checks.check_range(number, "x", 0, 1)
    request_checks.check_exclusive(SimpleNamespace(a=None, b=2), "a", "b")
    assert request_checks.set_field(SimpleNamespace(a=None, b=[]), ["a", "b"]) == "b"


def test_items_are_called_by_their_place():
    assert request_checks.item_params("x", "a") == ["x"]
    assert request_checks.item_params("x", ["a", "b"]) == ["x[0]", "x[1]"]
