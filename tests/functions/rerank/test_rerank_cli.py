"""The command line of reranking."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from functions.rerank.api import Scores
from functions.rerank.cli import RerankCli
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


def test_the_command_line_asks_in_lines_and_prints_best_first() -> None:
    shell = RerankCli()
    asking = {"query": "q", "documents": ["one", "two"]}
    assert shell.body("q\none\n\n two \n") == asking == shell.body("q | one | two")
    assert shell.body("") == {"query": "", "documents": []}
    assert shell.body(shell.between.join(["q", "one", "two"])) == asking
    assert shell.body(shell.between.join(["q", "|", "one", "|", "two"])) == asking
    assert shell.body("what is q\none | half\ntwo")["documents"] == ["one | half", "two"]
    assert shell.show(answer()) == "0.7500  d\n0.5000  b\n0.2500  a\n0.2500  c"
    assert shell.show(answer(True)).startswith("0.7500  [3]\n")
