"""Request bodies of four dialects as requests, and errors that name the field."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from functions.rerank.api import RerankRequest
from functions.rerank.request_dialects import RerankBody, check, to_request
from host.errors import InvalidRequest


def body(**fields: Any) -> RerankBody:
    return msgspec.json.decode(json.dumps({"query": "q"} | fields), type=RerankBody)


def texts(**fields: Any) -> list[str]:
    return to_request(body(**fields), cohere2=False).documents


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"documents": ["a", "b"]}, ["a", "b"]),
        ({"texts": ["a", "b"]}, ["a", "b"]),
        ({"documents": [{"text": "a", "id": 3}, "b"]}, ["a", "b"]),
        ({"documents": [{"title": "T", "text": "a"}], "rank_fields": ["title"]}, ["T"]),
        ({"documents": [{"title": "T", "text": "a"}], "rank_fields": ["title", "text"]}, ["title: T\ntext: a"]),
        ({"documents": [{"title": "T", "text": "a"}], "rank_fields": ["text", "title"]}, ["text: a\ntitle: T"]),
        ({"documents": [{"title": "T", "year": 1999}], "rank_fields": ["title", "year"]}, ["title: T\nyear: 1999"]),
        ({"documents": [{"title": "T"}, "b"], "rank_fields": ["title", "text"]}, ["title: T", "b"]),
        ({"documents": [{"title": "T", "text": None}], "rank_fields": ["title", "text"]}, ["title: T"]),
    ],
)
def test_texts_of_documents(fields: dict[str, Any], expected: list[str]) -> None:
    assert texts(**fields) == expected


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({}, "documents", "missing"),
        ({"documents": None}, "documents", "missing"),
        ({"documents": []}, "documents", "empty"),
        ({"documents": ["a", ""]}, "documents[1]", "empty"),
        ({"documents": ["a", None]}, "documents[1]", "null"),
        ({"documents": ["a", 7]}, "documents[1]", "a number"),
        ({"documents": ["a", ["b"]]}, "documents[1]", "a list"),
        ({"documents": [True]}, "documents[0]", "true or false"),
        ({"texts": ["a", 7]}, "texts[1]", "a number"),
        ({"texts": ["a", " "]}, "texts[1]", "empty"),
        ({"documents": [{"title": "T"}]}, "documents[0]", "no field `text`; rank_fields"),
        ({"documents": [{"text": "a"}], "rank_fields": ["title"]}, "documents[0]", "no field `title`"),
        ({"documents": [{"text": ["a"]}]}, "documents[0].text", "a list"),
        ({"documents": [{"text": ""}]}, "documents[0]", "empty"),
        ({"documents": ["a"], "rank_fields": []}, "rank_fields", "empty"),
        ({"documents": ["a"], "texts": ["a"]}, "texts", "not both"),
        ({"documents": ["a"], "top_n": 1, "top_k": 1}, "top_k", "not both"),
        ({"documents": ["a"], "truncate": True, "truncation": True}, "truncation", "not both"),
        ({"documents": ["a"], "top_n": 0}, "top_n", "at least 1, got 0; leave it out for all"),
        ({"documents": ["a"], "instruction": " "}, "instruction", "empty"),
        ({"documents": ["a"], "top_k": -3}, "top_k", "at least 1"),
        ({"documents": ["a"], "max_tokens_per_doc": 0}, "max_tokens_per_doc", "at least 1"),
        ({"documents": ["a"], "max_chunks_per_doc": 0}, "max_chunks_per_doc", "at least 1"),
        ({"documents": ["a"], "query": "  "}, "query", "empty"),
        ({"documents": ["a"] * 10_001}, "documents", "10001"),
        ({"documents": ["a"], "truncate_prompt_tokens": 5}, "truncate_prompt_tokens", "not served"),
        ({"documents": ["a"], "max_tokens_per_query": 5}, "max_tokens_per_query", "not served"),
        ({"documents": ["a"], "truncation_side": "left"}, "truncation_side", "right"),
        ({"texts": ["a"], "truncation_direction": "Left"}, "truncation_direction", "right"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        check(to_request(body(**fields), cohere2=False))
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("fields", "cohere2", "expected"),
    [
        ({}, False, None),
        ({}, True, True),
        ({"truncate": False}, True, False),
        ({"truncation": True}, False, True),
        ({"truncate": True}, False, True),
        ({"max_chunks_per_doc": 3}, True, None),
    ],
)
def test_who_cuts(fields: dict[str, Any], cohere2: bool, expected: bool | None) -> None:
    assert to_request(body(documents=["a"], **fields), cohere2=cohere2).truncate is expected


@pytest.mark.parametrize("name", ["max_tokens_per_doc", "max_chunks_per_doc"])
def test_numbers_of_any_size_cross_the_wire(name: str) -> None:
    request = to_request(body(documents=["a"], **{name: 10**30}), cohere2=False)
    carried = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=RerankRequest)
    assert carried == request and getattr(carried, name) > 10**9
