"""Scores as the JSON of each dialect."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from functions.rerank.api import Scores
from functions.rerank.request_dialects import RerankBody
from functions.rerank.response import render
from host.function import Usage


def body(**fields: Any) -> RerankBody:
    return msgspec.json.decode(json.dumps({"query": "q"} | fields), type=RerankBody)


def answer(
    cohere2: bool = False, scores: list[float] | None = None, truncated: list[int] | None = None, **fields: Any
) -> Any:
    scores = scores or [0.25, 0.5, 0.25, 0.75]
    found = Scores(scores=scores, truncated=truncated or [], longest=64, usage=Usage(prompt_tokens=9))
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


def test_a_model_that_was_not_named_is_reported() -> None:
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


def test_what_was_not_read_is_reported() -> None:
    (warning,) = answer(True, truncated=[1, 3])["meta"]["warnings"]
    assert "2 documents" in warning and warning.endswith("1, 3") and "64 tokens" in warning
    assert answer(True)["meta"]["api_version"]["version"] == "2"


@pytest.mark.parametrize(("count", "units"), [(1, 1), (100, 1), (101, 2), (1000, 10)])
def test_search_units(count: int, units: int) -> None:
    given = answer(scores=[0.5] * count, documents=["a"] * count)
    assert given["meta"]["billed_units"] == {"search_units": units}
