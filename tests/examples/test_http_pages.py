"""Every request on the pages of docs/ is sent to a running host, and its answer is as the page shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from expected_answers import differences, lines_differ

from host import app
from host.runtime import Runtime
from host.settings import read

BLOCK = re.compile(r"```http\n(\w+) (\S+)\n(.*?)```\s*```(json|text)\n(.*?)```", re.DOTALL)
ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


class Example(NamedTuple):
    page: str
    method: str
    path: str
    body: str
    language: str
    answer: str


def examples() -> list[Example]:
    return [Example(path.name, *found) for path in PAGES for found in BLOCK.findall(path.read_text())]


def documented() -> list[tuple[str, str]]:
    """Method and path of every endpoint in `/schema`, but for those of the plug-in that only tests install."""
    paths = app.litestar(Runtime(read(None))).openapi_schema.to_schema()["paths"]
    return [
        (method.upper(), path)
        for path, operations in paths.items()
        for method in operations
        if method in ("get", "post", "put", "patch", "delete", "head") and "echo" not in path
    ]


def matches(example: Example, method: str, path: str) -> bool:
    """Whether the example asks this endpoint; a path without `/v1` is the same endpoint, HEAD the same as GET."""
    pattern = re.sub(r"\{\w+\}", ".+", path)
    asked = example.path.partition("?")[0]
    same = asked in (path, f"/v1{path}") or ("{" in path and re.fullmatch(f"(/v1)?{pattern}", asked))
    return bool(same) and example.method == ("GET" if method == "HEAD" else method)


def test_every_block_with_a_request_is_an_example():
    assert sum(path.read_text().count("```http\n") for path in PAGES) == len(examples())


@pytest.mark.parametrize(("method", "path"), [*sorted(documented()), ("GET", "/schema")], ids=lambda part: part)
def test_every_endpoint_has_an_example(method, path):
    page = [example for example in examples() if example.page == "http.md"]
    assert any(matches(example, method, path) for example in page), "docs/http.md has no request to it"


@pytest.mark.parametrize("example", examples(), ids=lambda example: f"{example.page}-{example.method}-{example.path}")
def test_the_answer_is_the_pages(served, example):
    for name in ("all-minilm-l6-v2", *re.findall(r"(rampart-pii|minilm-rerank)", example.path)):
        if example.method == "GET" or example.path.endswith("/unload"):
            served.client.post(f"/v1/functions/{name}/load").raise_for_status()
    body = {"content": example.body, "headers": {"content-type": "application/json"}} if example.body.strip() else {}
    with served.client.stream(example.method, example.path, **body) as response:
        if example.language == "text":
            assert response.status_code == 200
            assert lines_differ(example.answer, response.iter_lines()) is None
            return
        response.read()
    expected = json.loads(example.answer)
    assert differences(expected, response.json()) == []
    assert response.is_error == ("error" in expected)


@pytest.mark.parametrize("path", [path for method, path in documented() if method == "POST" and path.count("/") == 1])
def test_a_path_without_v1_is_the_same_endpoint(served, path):
    example = next(found for found in examples() if found.page == "http.md" and matches(found, "POST", path))
    response = served.client.post(path, content=example.body, headers={"content-type": "application/json"})
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health"])
def test_probes_answer_head(served, path):
    response = served.client.head(path)
    assert (response.status_code, response.content) == (200, b"")
