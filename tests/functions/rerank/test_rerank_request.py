"""Requests of four dialects, what is wrong with them, and the answers that each of them reads."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from functions.rerank.api import RerankRequest, Scores
from functions.rerank.cli import RerankCli
from functions.rerank.render import render
from functions.rerank.request import RerankBody, check, to_request
from host.errors import InvalidRequest
from host.function import Usage


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


def answer(
    cohere2: bool = False, scores: list[float] | None = None, cut: list[int] | None = None, **fields: Any
) -> Any:
    scores = scores or [0.25, 0.5, 0.25, 0.75]
    found = Scores(scores=scores, cut=cut or [], longest=64, usage=Usage(prompt_tokens=9))
    name = "texts" if "texts" in fields else "documents"
    given = {name: ["a", "b", {"text": "c", "n": 1}, "d"], "model": "m"} | fields
    return json.loads(render(body(**given), found, cohere2=cohere2))


def test_best_first_and_ties_in_the_order_of_the_request() -> None:
    found = answer()
    assert [result["index"] for result in found["results"]] == [3, 1, 0, 2]
    assert found["data"] == found["results"]
    assert found["object"] == "list" and found["model"] == "m" and found["id"].startswith("rerank-")
    assert found["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
    assert found["meta"] == {
        "api_version": {"version": "1"},
        "billed_units": {"search_units": 1},
        "tokens": {"input_tokens": 9, "output_tokens": 0},
    }


def test_a_model_that_was_not_named_is_told() -> None:
    found = Scores(model="only", scores=[0.5], usage=Usage(prompt_tokens=1))
    assert json.loads(render(body(documents=["a"]), found, cohere2=False))["model"] == "only"
    assert json.loads(render(body(documents=["a"], model="alias"), found, cohere2=False))["model"] == "alias"


@pytest.mark.parametrize("name", ["top_n", "top_k"])
@pytest.mark.parametrize(("most", "count"), [(1, 1), (3, 3), (4, 4), (99, 4)])
def test_the_best_few(name: str, most: int, count: int) -> None:
    assert len(answer(**{name: most})["results"]) == count


@pytest.mark.parametrize(
    ("fields", "cohere2", "documents"),
    [
        ({}, False, [{"text": "d"}, {"text": "b"}, {"text": "a"}, {"text": "c", "n": 1}]),
        ({"return_documents": False}, False, None),
        ({}, True, None),
        ({"return_documents": True}, True, [{"text": "d"}, {"text": "b"}, {"text": "a"}, {"text": "c", "n": 1}]),
        ({"top_k": 2}, False, ["d", "b"]),
        ({"truncation": True}, False, ["d", "b", "a", {"text": "c", "n": 1}]),
    ],
)
def test_documents_in_the_answer(fields: dict[str, Any], cohere2: bool, documents: list[Any] | None) -> None:
    results = answer(cohere2, **fields)["results"]
    assert [result.get("document") for result in results] == (documents or [None] * len(results))
    assert all(("document" in result) is (documents is not None) for result in results)


def test_the_answer_for_tei() -> None:
    found = answer(texts=["a", "b", "c", "d"])
    assert found == [{"index": 3, "score": 0.75}, {"index": 1, "score": 0.5}, *(
        {"index": at, "score": 0.25} for at in (0, 2))]  # fmt: skip
    assert answer(texts=["a", "b", "c", "d"], return_text=True)[0] == {"index": 3, "score": 0.75, "text": "d"}


def test_what_was_not_read_is_told() -> None:
    (warning,) = answer(True, cut=[1, 3])["meta"]["warnings"]
    assert "2 documents" in warning and warning.endswith("1, 3") and "64 tokens" in warning
    assert answer(True)["meta"]["api_version"]["version"] == "2"


@pytest.mark.parametrize(("count", "units"), [(1, 1), (100, 1), (101, 2), (1000, 10)])
def test_search_units(count: int, units: int) -> None:
    given = answer(scores=[0.5] * count, documents=["a"] * count)
    assert given["meta"]["billed_units"] == {"search_units": units}


def test_the_shell_asks_in_lines_and_prints_best_first() -> None:
    shell = RerankCli()
    asking = {"query": "q", "documents": ["one", "two"]}
    assert shell.body("q\none\n\n two \n") == asking == shell.body("q | one | two")
    assert shell.body("") == {"query": "", "documents": []}
    assert shell.body(shell.between.join(["q", "one", "two"])) == asking
    assert shell.body(shell.between.join(["q", "|", "one", "|", "two"])) == asking
    assert shell.body("what is q\none | half\ntwo")["documents"] == ["one | half", "two"]
    assert shell.show(answer()) == "0.7500  d\n0.5000  b\n0.2500  a\n0.2500  c"
    assert shell.show(answer(True)).startswith("0.7500  [3]\n")
