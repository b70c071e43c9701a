"""The comparison of answers with pages: what is the same passes, and each kind of difference is found."""

import pytest
from expected_answers import differences, lines_differ


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ({"a": 1, "b": [True, None, "x"]}, {"b": [True, None, "x"], "a": 1}),
        ({"id": "chatcmpl-…"}, {"id": "chatcmpl-6a75"}),
        ({"message": "expected one of …or none"}, {"message": "expected one of a, b\nor none"}),
        ({"score": 0.98}, {"score": 0.9801}),
        ({"items": [1, "…"]}, {"items": [1, 2, 3]}),
        ({"items": ["…"]}, {"items": []}),
        ({"a": 1, "…": "…"}, {"a": 1, "b": 2}),
        ({"pid": 1, "plan": {"bytes": {"ram": 5}}}, {"pid": 2, "plan": {"bytes": {"ram": 7}}}),
    ],
)
def test_what_is_the_same_passes(expected, got):
    assert differences(expected, got) == []


@pytest.mark.parametrize(
    ("expected", "got", "words"),
    [
        ({"a": 1}, {"a": 2}, "$.a: 2 instead of 1"),
        ({"a": 1}, {"a": 1.0}, "$.a: 1.0 instead of 1"),
        ({"a": 1}, {"a": True}, "$.a: True instead of 1"),
        ({"a": None}, {"a": "x"}, "$.a: 'x' instead of None"),
        ({"a": 1, "b": 2}, {"a": 1}, "$: no key 'b'"),
        ({"a": 1}, {"a": 1, "b": 2}, "$: the page has no key 'b'"),
        ({"a": [1]}, {"a": [1, 2]}, "$.a: 2 items instead of 1"),
        ({"a": [1, 2, "…"]}, {"a": [1]}, "$.a: 1 items instead of 3"),
        ({"a": [{"score": 0.5}]}, {"a": [{"score": 0.7}]}, "$.a[0].score: 0.7 instead of 0.5"),
        ({"id": "modr-…"}, {"id": "chatcmpl-1"}, "$.id: 'chatcmpl-1' instead of 'modr-…'"),
        ({"embedding": [0.03]}, {"embedding": [0.04]}, "$.embedding[0]: 0.04 instead of 0.03"),
        ({"pid": 1}, {"pid": "1"}, "$.pid: '1' instead of 1"),
        ({"flagged": False}, {"flagged": True}, "$.flagged: True instead of False"),
    ],
)
def test_each_difference_is_found(expected, got, words):
    assert differences(expected, got) == [words]


STREAM = ['data: {"n": 1}', "", 'data: {"n": 2}', "", "data: [DONE]"]


@pytest.mark.parametrize(
    "page",
    ['data: {"n": 1}\n\n…\n\ndata: [DONE]', 'data: {"n": 1}\n\ndata: {"n": 2}\n\ndata: [DONE]', "…\ndata: [DONE]\n…"],
)
def test_lines_are_compared_in_order(page):
    assert lines_differ(page, STREAM) is None


@pytest.mark.parametrize("page", ['data: {"n": 2}', "…\ndata: [END]", 'data: {"n": 1}\ndata: [DONE]'])
def test_lines_that_differ_are_found(page):
    assert lines_differ(page, STREAM)
