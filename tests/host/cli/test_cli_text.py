"""The small parts: tables, times, events, bodies, and the transport into this process."""

import asyncio
import io
import math

import click
import httpx
import pytest

from host.cli import Failure, request_body
from host.cli.asgi_transport import AsgiTransport
from host.cli.events import events
from host.cli.table import span, table
from host.function import Function, Operation

# ------------------------------------------------------------------------------------------------ tables


def test_columns_are_aligned_and_headed_in_capitals():
    assert table(("name", "n"), [("a", 1), ("long", None), ("", "x y")]) == "NAME  N\na     1\nlong  -\n-     x y"


def test_a_table_without_rows_is_its_head():
    assert table(("a", "b"), []) == "A  B"


def test_nothing_that_moves_the_cursor_reaches_the_terminal():
    assert "\x1b" not in table(("a",), [("\x1b[2Jx\ny",)])
    assert len(table(("a",), [("x\ny",)]).splitlines()) == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (4.5, "4.5s"),
        (59, "59s"),
        (60, "1m"),
        (250, "4m10s"),
        (3600, "1h"),
        (90061, "1d1h1m1s"),
        (math.inf, "never"),
        (None, "never"),
    ],
)
def test_times_are_said_as_manifests_spell_them(seconds, text):
    from host.manifest import seconds as parse

    assert span(seconds) == text
    assert parse(text) == (math.inf if seconds is None else seconds)


# ------------------------------------------------------------------------------------------------ server-sent events


async def collect(pieces, comment=None):
    async def source():
        for piece in pieces:
            yield piece

    return [data async for data in events(source(), comment)]


STREAM = (
    b': loading weights 1/2 MB\n\ndata: {"a": 1}\n\nevent: x\ndata: one\ndata: two\n\ndata: [DONE]\n\ndata: after\n\n'
)


@pytest.mark.anyio
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
async def test_events_are_the_same_however_the_bytes_are_cut(size, ends):
    stream, comments = STREAM.replace(b"\n", ends), []
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert await collect(pieces, comments.append) == [b'{"a": 1}', b"one\ntwo"]
    assert comments == ["loading weights 1/2 MB"]


@pytest.mark.anyio
async def test_a_stream_that_is_cut_off_ends():
    assert await collect([b"data: 1\n\ndata: 2"]) == [b"1"]


# ------------------------------------------------------------------------------------------------ bodies


class Loud:
    def body(self, text):
        return {"text": text.upper(), "stream": True}

    def show(self, answer):
        return answer["text"]


def body(*words, json=None, shell=None, stdin=""):
    return request_body.body("m", words, json, shell or Loud(), io.StringIO(stdin))


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("hi", "you"), {"text": "HI YOU", "stream": True}),
        (("hi", "temperature=0.5"), {"text": "HI", "stream": True, "temperature": 0.5}),
        (("a=b",), {"a": "b"}),
        (("a=",), {"a": ""}),
        (('a=["x", 1]', "b=true", "c=null", "d=x=y"), {"a": ["x", 1], "b": True, "c": None, "d": "x=y"}),
        (("what is x=3", "stream=false"), {"text": "WHAT IS X=3", "stream": False}),
        (("2=3",), {"text": "2=3", "stream": True}),
        (("a=line\nline",), {"a": "line\nline"}),
    ],
)
def test_words_and_pairs_become_a_body(words, wanted):
    assert body(*words) == {**wanted, "model": "m"}


def test_a_lone_dash_reads_words_from_standard_input():
    assert body("-", "now", stdin=" from\nafar \n")["text"] == "FROM\nAFAR NOW"


@pytest.mark.parametrize(("json", "stdin"), [('{"x": 1}', ""), ("-", '{"x": 1}')])
def test_json_is_the_body_and_pairs_win(json, stdin):
    assert body("y=2", json=json, stdin=stdin) == {"x": 1, "y": 2, "model": "m"}
    assert body("x=2", json=json, stdin=stdin) == {"x": 2, "model": "m"}


@pytest.mark.parametrize(
    ("words", "json", "message"),
    [
        ((), None, "say what to ask"),
        (("hi",), "{}", "words or --json, not both"),
        ((), "{", "--json is not JSON"),
        ((), "[1]", "is to be an object"),
        (("model=other",), None, "the body says model 'other', and the command `m`"),
    ],
)
def test_what_is_no_question_is_refused(words, json, message):
    with pytest.raises(click.ClickException, match=message):
        body(*words, json=json)


def test_a_function_without_a_shell_takes_no_words():
    with pytest.raises(Failure, match="takes no plain words"):
        request_body.body("m", ("hi",), None, None, io.StringIO())
    assert request_body.body("m", ("a=1",), None, None, io.StringIO()) == {"a": 1, "model": "m"}


def function(*operations):
    made = tuple(Operation(name=name, request=int, answer=int, path=path) for name, path in operations)
    return Function(name="f", summary="", operations=made, instances={})


def test_the_operation_is_the_first_with_a_route_or_the_one_named():
    found = function(("hidden", None), ("a", "/a"), ("b", "/b"))
    assert request_body.operation(found, None).name == "a"
    assert request_body.operation(found, "b").path == "/b"


@pytest.mark.parametrize(
    ("operations", "name", "message"),
    [
        ([("a", None)], None, "no operation with a JSON route"),
        ([("a", "/a")], "b", "no operation `b` with a JSON route; it has: a"),
        ([("a", None), ("b", "/b")], "a", "no operation `a` with a JSON route; it has: b"),
    ],
)
def test_an_operation_that_cannot_be_asked_is_refused(operations, name, message):
    with pytest.raises(Failure, match=message):
        request_body.operation(function(*operations), name)


# ------------------------------------------------------------------------------------------------ inside


def client(app):
    return httpx.AsyncClient(transport=AsgiTransport(app), base_url="http://inside")


@pytest.mark.anyio
async def test_an_application_gets_the_request_and_answers():
    async def app(scope, receive, send):
        message = await receive()
        text = f"{scope['method']} {scope['path']} {scope['query_string'].decode()} {message['body'].decode()}"
        await send({"type": "http.response.start", "status": 201, "headers": [(b"x-y", b"z")]})
        await send({"type": "http.response.body", "body": text.encode()})

    async with client(app) as http:
        response = await http.post("/v1/a%20b?c=d", content=b"body")
    assert (response.status_code, response.headers["x-y"]) == (201, "z")
    assert response.text == "POST /v1/a b c=d body"


@pytest.mark.anyio
async def test_an_answer_streams_and_closing_it_early_is_a_disconnect():
    told = asyncio.Event()

    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        told.set()

    async with client(app) as http, http.stream("POST", "/") as response:
        assert await anext(response.aiter_bytes()) == b"first"
        assert not told.is_set()
    assert told.is_set()


@pytest.mark.anyio
async def test_an_application_that_fails_fails_the_request():
    async def app(scope, receive, send):
        raise ZeroDivisionError

    async with client(app) as http:
        with pytest.raises(ZeroDivisionError):
            await http.get("/")


@pytest.mark.anyio
async def test_a_request_given_up_before_its_head_is_a_disconnect():
    gone = asyncio.Event()

    async def app(scope, receive, send):
        await receive()
        await receive()
        gone.set()

    async with client(app) as http:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await http.get("/")
    assert gone.is_set()
