"""`POST /v1/echo` as the host serves it: an outsider's route over an outsider's instance, in the host's error shape."""

import json

import msgspec
import pytest
from litestar.testing import AsyncTestClient

from host.app import litestar
from host.errors import ColdframeError, ManifestError, descendants
from host.runtime import Runtime
from host.settings import read

pytestmark = pytest.mark.anyio
MANIFEST = "task: echo\nmodel: package:coldframe_echo/model.echo\nplacement: inline\nslots: 2\n"


@pytest.fixture(scope="module")
async def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manifests")
    (folder / "echo.yaml").write_text(MANIFEST)
    (folder / "counted.yaml").write_text(MANIFEST)
    runtime = Runtime(msgspec.structs.replace(read(None), manifests=folder))
    async with AsyncTestClient(app=litestar(runtime)) as client:
        yield client


async def ask(client, **body):
    return await client.post("/v1/echo", json={"model": "echo", **body})


def frames(text):
    return [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]


async def test_one_json_object(client):
    answer = await ask(client, text="hello out there")
    assert answer.status_code == 200
    assert answer.json()["text"] == "hello out there"
    usage = answer.json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["cached_tokens"]) == (3, 3, 0)


async def test_a_stream_of_events(client):
    answer = await ask(client, text="hello out there", stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, done = frames(answer.text)
    assert done == "[DONE]"
    *tokens, end = map(json.loads, events)
    assert [token["text"] for token in tokens] == ["hello", " out", " there"]
    assert {token["type"] for token in tokens} == {"token"}
    assert (end["type"], end["usage"]["completion_tokens"]) == ("end", 3)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("code", sorted({cls.code for cls in descendants(ColdframeError)} - {ManifestError.code}))
async def test_every_error_has_its_own_status(client, code, stream):
    expected = {cls.code: cls.status for cls in descendants(ColdframeError)}[code]
    answer = await ask(client, error=code, stream=stream)
    assert (answer.status_code, answer.json()["error"]["code"]) == (expected, code)


async def test_an_error_after_the_first_token_is_a_frame(client):
    answer = await ask(client, count=3, error="queue_full", error_after=1, stream=True)
    assert answer.status_code == 200
    first, error, done = frames(answer.text)
    assert json.loads(first)["type"] == "token"
    assert json.loads(error)["error"]["code"] == "queue_full"
    assert done == "[DONE]"


async def test_a_bug_is_opaque(client):
    answer = await ask(client, error="bug")
    assert answer.status_code == 500
    assert "ZeroDivision" not in answer.text
    assert "echo plug-in" not in answer.text


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"delay": -1}, 400, "delay"),
        ({"count": "many"}, 400, "count"),
        ({"crash": "softly"}, 400, "crash"),
        ({"txet": "x"}, 400, "txet"),
        ({"error": "nope"}, 400, "error"),
        ({"model": "ecko"}, 404, "echo"),
    ],
)
async def test_bad_requests_name_what_is_wrong(client, body, status, word):
    answer = await ask(client, **body)
    assert answer.status_code == status
    assert word in answer.json()["error"]["message"]


async def test_the_report_is_asked_for_over_http(client):
    await ask(client, model="counted", text="x")
    assert (await ask(client, model="counted", error="queue_full")).status_code == 429
    report = (await ask(client, model="counted", report=True)).json()["report"]
    assert (report["started"], report["finished"], report["failed"], report["running"]) == (2, 1, 1, 0)


async def test_the_route_is_in_the_openapi_document(client):
    paths = (await client.get("/schema/openapi.json")).json()["paths"]
    assert "post" in paths["/v1/echo"]
