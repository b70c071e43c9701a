"""Requests of granian's protocol as ASGI sees them, and responses back."""

import pytest

from host.http.rsgi import RsgiApp

pytestmark = pytest.mark.anyio


class Scope:
    proto = "http"
    http_version = "1.1"
    server = "127.0.0.1:8000"
    client = "[::1]:9"
    scheme = "http"
    method = "POST"
    path = "/a b"
    query_string = "x=1"
    authority = None

    def __init__(self, headers, authority=None):
        self._headers = headers
        self.authority = authority

    @property
    def headers(self):
        return dict_like(self._headers)


def dict_like(pairs):
    return type("Headers", (), {"items": staticmethod(lambda: pairs)})


class Stream:
    def __init__(self, sent):
        self._sent = sent

    async def send_bytes(self, data):
        self._sent.append(data)


class Proto:
    def __init__(self, parts):
        self._parts = parts
        self.sent = []

    async def __call__(self):
        return b"".join(self._parts)

    async def __aiter__(self):
        for part in self._parts:
            yield part

    async def client_disconnect(self):
        return None

    def response_bytes(self, status, headers, body):
        self.sent.append((status, headers, body))

    def response_stream(self, status, headers):
        self.sent.append((status, headers))
        return Stream(self.sent)


async def asked(headers, parts, answer, authority=None):
    """Serve one request; returns its scope, what `receive` gave and what was sent."""
    found = {}

    async def app(scope, receive, send):
        found.update(scope)
        got = []
        while not got or got[-1]["type"] != "http.disconnect":
            got.append(await receive())
        found["got"] = got
        for message in answer:
            await send(message)

    proto = Proto(parts)
    await RsgiApp(app, "/models").__rsgi__(Scope(headers, authority), proto)
    return found, proto.sent


START = {"type": "http.response.start", "status": 201, "headers": [(b"a", b"b")]}


async def test_a_short_body_comes_as_one_and_a_whole_response_goes_as_one():
    headers = [("content-length", "4"), ("x", "1"), ("x", "2")]
    answer = [START, {"type": "http.response.body", "body": b"hi"}]
    scope, sent = await asked(headers, [b"ab", b"cd"], answer)
    assert (scope["path"], scope["query_string"], scope["root_path"]) == ("/a b", b"x=1", "/models")
    assert (scope["client"], scope["server"]) == (("::1", 9), ("127.0.0.1", 8000))
    assert scope["headers"] == [(b"content-length", b"4"), (b"x", b"1"), (b"x", b"2")]
    assert [message.get("body") for message in scope["got"]] == [b"abcd", None]
    assert sent == [(201, [("a", "b")], b"hi")]


@pytest.mark.parametrize("headers", [[("transfer-encoding", "chunked")], [("content-length", str(2 << 20))]])
async def test_a_body_of_unknown_or_great_length_comes_in_parts(headers):
    scope, _ = await asked(headers, [b"ab", b"cd"], [])
    assert [message.get("body") for message in scope["got"]] == [b"ab", b"cd", b"", None]
    assert [message.get("more_body") for message in scope["got"]] == [True, True, False, None]


async def test_a_response_in_parts_is_a_stream():
    parts = [{"type": "http.response.body", "body": data, "more_body": bool(data)} for data in (b"1", b"2", b"")]
    _, sent = await asked([], [], [START, *parts])
    assert sent == [(201, [("a", "b")]), b"1", b"2"]


async def test_http_2_has_its_host_in_front():
    scope, _ = await asked([("x", "1")], [], [], authority="models.example")
    assert scope["headers"] == [(b"host", b"models.example"), (b"x", b"1")]
