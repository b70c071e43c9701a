"""The tree of errors: its drawing, its codes, its way over the wire, and what clients see of it."""

import re
from pathlib import Path

import pytest

from host import errors
from host.errors import ColdframeError, ErrorBody, LoadFailed, ManifestError, descendants, from_body
from host.http.errors import error_object, headers, internal, respond

ALL = descendants()


def test_the_drawing_in_the_docstring_is_the_tree():
    drawn = re.findall(r"^\s*[│├└─ ]*(\w+) +(\d{3})  (\w+)", errors.__doc__, re.M)
    assert sorted(drawn) == sorted((cls.__name__, str(cls.status), cls.code) for cls in ALL)


def test_codes_are_unique_and_classes_documented():
    assert len({cls.code for cls in ALL}) == len(ALL)
    assert all(cls.__doc__ for cls in ALL)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_error_crosses_the_wire(cls):
    error = cls("no", key="x") if cls is ManifestError else cls("no", param="x", retry_after=2.5, extra={"n": 1})
    again = from_body(error.body())
    assert type(again) is cls
    assert (again.message, again.param) == ("no", "x")
    if cls is not ManifestError:
        assert (again.retry_after, again.extra) == (2.5, {"n": 1})


def test_an_unknown_code_becomes_the_root():
    assert type(from_body(ErrorBody(code="from the future", message="x"))) is ColdframeError


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_retry_headers(cls):
    error = cls("no")
    found = headers(error)
    retry = False if cls.status == 500 else cls.retry  # what nobody expected happens again
    assert found.get("x-should-retry") == {True: "true", False: "false", None: None}[retry]
    waits = cls.status in (429, 503) and (cls.retry is not False or cls is LoadFailed)
    assert ("retry-after" in found, "retry-after-ms" in found) == (waits, waits)


@pytest.mark.parametrize(
    ("after", "seconds", "milliseconds"),
    [(None, "1", "1000"), (0.2, "1", "200"), (9.01, "10", "9010"), (0, "1", "0"), (-3, "1", "0")],
)
def test_retry_after_is_rounded_up_to_whole_seconds(after, seconds, milliseconds):
    found = headers(LoadFailed("no", retry_after=after))
    assert (found["retry-after"], found["retry-after-ms"]) == (seconds, milliseconds)


def test_a_failed_load_says_how_long_it_lasts_and_keeps_sdks_from_waiting_for_it():
    found = headers(LoadFailed("the weights are stale", retry_after=20.0))
    assert (found["x-should-retry"], found["retry-after"]) == ("false", "20")


def test_extra_fields_are_shown_but_take_no_other_ones_place():
    shown = error_object(ColdframeError("m", param="p", extra={"n_ctx": 5, "message": "other", "code": 7}))
    assert shown == {"message": "m", "type": "server_error", "param": "p", "code": "server_error", "n_ctx": 5}


def test_what_nobody_expected_is_opaque():
    shown = internal(ValueError("/secret/path hf_token"))
    assert (type(shown), "secret" in shown.message, "hf_token" in shown.message) == (ColdframeError, False, False)


def test_a_response_is_json_with_the_status():
    response = respond(LoadFailed("no"))
    assert (response.status_code, response.media_type) == (503, "application/json")


def test_a_manifests_error_names_the_place_as_editors_link_it():
    error = ManifestError("is wrong", file=Path("a.yaml"), line=3, key="slots")
    assert str(error) == "a.yaml:3: slots: is wrong"
    assert str(ManifestError("is wrong")) == "is wrong"
