"""The short way of a JSON POST answers as Litestar does, whatever comes in."""

import httpx
import msgspec
import pytest
from litestar import Litestar, post
from litestar.params import FromPath, FromQuery, JSONBody

from host import app
from host.http.direct_route import DirectRoutes
from host.runtime import Runtime
from host.settings import read

pytestmark = pytest.mark.anyio
JSON = {"content-type": "application/json"}
BODIES = {
    "plain": b'{"model": "a", "text": "one two"}',
    "lax number": b'{"model": "a", "text": "one two", "count": "1"}',
    "no model": b'{"text": "one"}',
    "unknown model": b'{"model": "b", "text": "one"}',
    "unknown field": b'{"model": "a", "txt": "one"}',
    "wrong type": b'{"model": "a", "text": 5}',
    "out of range": b'{"model": "a", "count": -1}',
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "broken": b'{"model": "a"',
    "trailing": b'{"model": "a"} x',
    "not UTF-8": b'{"model": "a", "text": "\xff"}',
    "deep": b'{"model": ' + b"[" * 100_000,
    "large": b'{"model": "a", "text": "' + b"x" * 2000 + b'"}',
    "own error": b'{"model": "a", "error": "queue_full"}',
    "bug": b'{"model": "a", "error": "bug"}',
    "stream": b'{"model": "a", "text": "one two", "stream": true}',
    "stream that fails at once": b'{"model": "a", "text": "one", "stream": true, "error": "unavailable"}',
    "stream that fails later": b'{"model": "a", "text": "1 2", "stream": true, "error": "bug", "error_after": 1}',
}


@pytest.fixture
async def both(tmp_path):
    """Two clients of one runtime: the application as served, and Litestar by itself."""
    (tmp_path / "a.yaml").write_text("task: echo\nmodel: package:coldframe_echo/model.echo\nplacement: inline\n")
    runtime = Runtime(msgspec.structs.replace(read(None), manifests=tmp_path, max_body=1000))
    runtime.start(watch=False, warm=False)
    clients = []
    for served in (app.create(runtime), app.litestar(runtime)):
        transport = httpx.ASGITransport(served, raise_app_exceptions=False)
        clients.append(httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1"))
    yield clients
    await runtime.stop(0)
    for client in clients:
        await client.aclose()


async def same(both, *args, **kwargs):
    direct, plain = [await client.request(*args, **kwargs) for client in both]
    assert (direct.status_code, direct.content) == (plain.status_code, plain.content)
    headers = dict(direct.headers)
    del headers["x-request-id"]
    assert headers == dict(plain.headers)
    return direct


@pytest.mark.parametrize("body", BODIES)
async def test_the_answer_is_litestars(both, body):
    await same(both, "POST", "/v1/echo", content=BODIES[body], headers=JSON)


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}, {"origin": "https://other.example"}])
async def test_headers_change_as_much_as_they_do_there(both, headers):
    await same(both, "POST", "/v1/echo", content=BODIES["plain"], headers=headers)


@pytest.mark.parametrize("size", [10, 2000])
async def test_a_body_of_unknown_length_has_the_same_bound(both, size):
    async def parts():
        yield b'{"model": "a", "text": "'
        yield b"x" * size + b'"}'

    answers = [await client.post("/v1/echo", content=parts(), headers=JSON) for client in both]
    assert {answer.status_code for answer in answers} == {200 if size == 10 else 413}


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/echo"), ("POST", "/v1/echoes"), ("GET", "/livez")])
async def test_other_requests_are_not_its_matter(both, method, path):
    await same(both, method, path)


async def test_handlers_that_ask_for_more_are_left_to_litestar(tmp_path):
    class Body(msgspec.Struct):
        x: int

    async def refuse(connection, handler):
        raise AssertionError

    @post("/plain")
    async def plain(data: JSONBody[Body]) -> dict[str, int]:
        return {"x": data.x}

    @post("/asked")
    async def asked(data: JSONBody[Body], page: FromQuery[int] = 1) -> None: ...

    @post("/guarded", guards=[refuse])
    async def guarded(data: JSONBody[Body]) -> None: ...

    @post("/path/{name:str}")
    async def by_path(data: JSONBody[Body], name: FromPath[str]) -> None: ...

    @post("/bare")
    async def bare(data: JSONBody[dict[str, int]]) -> None: ...

    inner = Litestar([plain, asked, guarded, by_path, bare], openapi_config=None)
    routes = DirectRoutes(inner, {}, 1000)
    assert list(routes._routes) == ["/plain"]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(routes), base_url="http://x") as client:
        answer = await client.post("/plain", json={"x": 5})
        assert (answer.status_code, answer.json()) == (201, {"x": 5})  # dressed by Litestar: POST's own status
